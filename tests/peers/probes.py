# SPDX-License-Identifier: Apache-2.0
"""Programs of tests that answer each line of JSON with one."""
import json
import subprocess
import sys


class Probe:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request):
        self.process.stdin.write((json.dumps(request) + "\n").encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the probe ended with {self.process.wait()} at {json.dumps(request)[:2000]}")
        return json.loads(line)
