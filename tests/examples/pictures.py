#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pictures.py PROGRAM listen|neighbours|splat: the examples that write pictures, as a user runs them, and with wrong input."""
import math, os, pathlib, re, signal, struct, subprocess, sys, tempfile, wave, zlib

PROGRAM, PART = sys.argv[1:3]


def run(*words, status=0, where=None):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, cwd=where, errors="replace")
    assert done.returncode == status, f"{words}: status {done.returncode}, expected {status}\n{done.stdout}{done.stderr}"
    return done


def check(name, good, value=""):
    print(f"{'ok ' if good else 'BAD'} {name}: {value}")
    assert good, name


def refused(name, words, *says, status=2):
    text = run(*words, status=status).stderr
    check(name, all(word in text for word in says), text.splitlines()[0])


def pixels(file):
    """Rows of (red, green, blue) of an RGB picture of 8 bits."""
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", body[:10])
            assert (depth, colours) == (8, 2), (depth, colours)
        if kind == b"IDAT":
            packed += body
        at += size + 12
    raw, rows, before = zlib.decompress(packed), [], bytearray(3 * width)
    for y in range(height):
        method, row = raw[y * (3 * width + 1)], bytearray(raw[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)])
        for i in range(len(row)):
            left, up, corner = (row[i - 3] if i >= 3 else 0), before[i], (before[i - 3] if i >= 3 else 0)
            if method == 1:
                row[i] = row[i] + left & 255
            elif method == 2:
                row[i] = row[i] + up & 255
            elif method == 3:
                row[i] = row[i] + (left + up) // 2 & 255
            elif method == 4:
                guess = left + up - corner
                row[i] = row[i] + min((left, up, corner), key=lambda v: abs(guess - v)) & 255
        rows.append([tuple(row[i:i + 3]) for i in range(0, len(row), 3)])
        before = row
    return rows


def count(rows, wanted):
    return sum(wanted(*p) for row in rows for p in row)


def peaks(text):
    return [float(h) for h in re.findall(r"peak at ([\d.]+) Hz", text)]


def pcm(file, channels, rate=8000, seconds=1.0):
    """A WAV file of 16 bits; channels: functions of time."""
    with wave.open(str(file), "wb") as out:
        out.setnchannels(len(channels))
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(b"".join(struct.pack("<h", round(32000 * f(i / rate))) for i in range(int(seconds * rate)) for f in channels))


def floats(file, samples, rate=8000):
    body = struct.pack(f"<{len(samples)}f", *samples)
    file.write_bytes(b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, rate, 4 * rate, 4, 32) +
                     b"data" + struct.pack("<I", len(body)) + body)


def tone(frequency, loud=0.5):
    return lambda t: loud * math.sin(2 * math.pi * frequency * t)


def listen(work):
    done = run(where=work)  # fails unless it finds the tones of the sound that it makes
    found = peaks(done.stdout)
    check("the tones of its own sound", [round(f / 50) * 50 for f in sorted(found)] == [450, 1250, 3000, 6100], found)
    power, mel = pixels(work / "listen_power.png"), pixels(work / "listen_mel.png")
    red = [(x, y) for y, row in enumerate(power) for x, (r, g, b) in enumerate(row) if (r, g, b) == (230, 0, 26)]
    places = sorted({round(x * 8000 / (len(power[0]) - 1) / 400) for x, _ in red})
    check("four marks of peaks, at their frequencies", places == [1, 3, 7, 8, 15] and len(red) > 300, (places, len(red)))
    marks = [y for y, row in enumerate(mel) if row[0] == (0, 230, 230)]
    check("marks at the edge of the spectrogram", 4 * 3 - 2 <= len(marks) <= 4 * 3, marks)
    bright = [sum(sum(p) for p in mel[y][20:-20]) for y in range(len(mel))]
    groups = [y for y in marks if y + 1 not in marks]
    level = sorted(bright)[len(bright) // 2]
    check("the bands of the tones are the bright ones", all(max(bright[max(y - 7, 0):y + 6]) > 1.3 * level for y in groups), groups)

    pcm(work / "stereo.wav", [tone(500), tone(2000)])
    done = run(work / "stereo.wav", "--out", work / "stereo", "--n-fft", 512)
    check("stereo: both channels are heard", sorted(peaks(done.stdout)) == [500, 2000] and "2 channels" in done.stdout, done.stdout)
    floats(work / "loud.wav", [tone(1000, 40)(i / 8000) for i in range(8000)])
    done = run(work / "loud.wav", "--out", work / "loud", "--n-fft", 512, "--peaks", 1)
    check("loud samples are not clipped", peaks(done.stdout) == [1000] and "40 times full scale" in done.stdout, done.stdout)
    floats(work / "silent.wav", [0.0] * 4000)
    check("silence has no peaks", "no peaks" in run(work / "silent.wav", "--out", work / "silent").stdout)

    floats(work / "nan.wav", [0.0] * 100 + [math.nan] + [0.0] * 4000)
    refused("a sample that is no number", [work / "nan.wav", "--out", work / "x"], "sample 100", "nan", status=1)
    floats(work / "huge.wav", [0.0] * 4000 + [1e30])
    refused("a sample beyond all measure", [work / "huge.wav", "--out", work / "x"], "sample 4000", "1000000", status=1)
    floats(work / "large.wav", [tone(1000, 1e6)(i / 8000) for i in range(8000)])
    check("a million times full scale", peaks(run(work / "large.wav", "--out", work / "x", "--n-fft", 512, "--peaks", 1).stdout) == [1000])
    floats(work / "short.wav", [0.5] * 100)
    refused("a short sound", [work / "short.wav", "--out", work / "x"], "2048", "100", status=1)
    floats(work / "empty.wav", [])
    refused("an empty sound", [work / "empty.wav", "--out", work / "x"], "got 0", status=1)
    (work / "text.wav").write_text("this is no sound\n" * 50)
    refused("a file that is no sound", [work / "text.wav", "--out", work / "x"], "text.wav", status=1)
    whole = (work / "loud.wav").read_bytes()
    (work / "cut.wav").write_bytes(whole[:len(whole) // 2])
    check("a file that was cut off is read as far as it goes", "0.50 s" in run(work / "cut.wav", "--out", work / "x").stdout)
    refused("a file that is missing", [work / "none.wav", "--out", work / "x"], "none.wav", status=1)
    refused("a folder that is missing", ["--out", work / "no" / "x"], "cannot be written", status=1)
    for option, value in (("--n-fft", "0"), ("--n-fft", "99999999999999999999"), ("--mels", "7"), ("--peaks", "-1"), ("--peaks", "2x")):
        refused(f"{option} {value}", [option, value], option, value)
    refused("two sounds", ["a.wav", "b.wav"], "a.wav", "b.wav")
    refused("an option without a value", ["--mels"], "--mels")
    refused("an unknown option", ["--speed", "2"], "--speed")


def neighbours(work):
    out = work / "layout.png"
    done = run("--points", 600, "--steps", 200, "--out", out)  # checks the neighbours and the layout itself
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", done.stdout)]
    check("the loss falls", losses[-1] < losses[0] - 0.5, losses)
    rows = pixels(out)
    colours = {p for row in rows for p in row}
    check("eight groups on white", len(colours) == 9 and (255, 255, 255) in colours, len(colours))
    check("many points", count(rows, lambda *p: p != (255, 255, 255)) > 600 * 8, "")
    again = work / "again.png"
    run("--points", 600, "--steps", 200, "--out", again)
    check("the same layout each time", out.read_bytes() == again.read_bytes())

    p = subprocess.Popen([PROGRAM, "--points", "600", "--steps", "100000", "--out", work / "stopped.png"], stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    p.send_signal(signal.SIGINT)
    text = p.stdout.read()
    check("Ctrl-C keeps the layout so far", p.wait(60) == 130 and "so far" in text and len(pixels(work / "stopped.png")) == 900, p.returncode)
    refused("a folder as the picture", ["--out", work], "directory", status=1)
    refused("a folder that is missing", ["--out", work / "no" / "x.png"], "cannot be written", status=1)
    os.mkfifo(work / "pipe.png")
    refused("a pipe as the picture", ["--out", work / "pipe.png"], "pipe", status=1)
    (work / "pipe.png").unlink()
    (work / "own.png.part").write_text("mine")
    refused("a file that is not ours", ["--out", work / "own.png"], "own.png.part", status=1)
    (work / "own.png.part").unlink()
    for option, value in (("--points", "99"), ("--points", "100001"), ("--k", "1"), ("--k", "51"), ("--steps", "0"), ("--steps", "many")):
        refused(f"{option} {value}", [option, value], option, value)
    refused("more neighbours than a group has", ["--points", "120", "--k", "15"], "--k 15", "12")
    refused("an unknown option", ["--speed", "2"], "--speed")
    check("no other files are left", sorted(f.name for f in work.iterdir()) == ["again.png", "layout.png", "stopped.png"])


def splat(work):
    small = ["--gaussians", 600, "--width", 48, "--height", 40, "--turntable", 3]
    done = run(*small, "--steps", 150, "--out", work / "fit")
    values = [float(x) for x in re.findall(r"([\d.]+) dB", done.stdout)]
    check("held-out views come closer", values[-1] > values[0] + 2, values)
    check("all pictures are there", sorted(f.name for f in (work / "fit").iterdir()) ==
          [f"turntable_00{k}.png" for k in range(3)] + [f"view_{k}.png" for k in range(4)])
    rows = pixels(work / "fit" / "view_0.png")
    check("traced and fitted views side by side", (len(rows), len(rows[0])) == (40, 96))
    traced, fitted = [[row[:48] for row in rows], [row[48:] for row in rows]]
    error = sum(abs(a - b) for one, two in zip(traced, fitted) for p, q in zip(one, two) for a, b in zip(p, q)) / (3 * 40 * 48)
    check("the fitted view looks like the traced one", error < 255 * 0.12, error)
    done = run(*small, "--steps", 20, "--out", work / "again")
    check("the same fit each time", done.stdout.replace("again", "") == run(*small, "--steps", 20, "--out", work / "third").stdout.replace("third", ""))

    # A step needs more room than the views before.
    run("--gaussians", 29, "--width", 48, "--height", 48, "--steps", 5, "--turntable", 0, "--out", work / "grown")

    p = subprocess.Popen([PROGRAM, *map(str, small), "--steps", "1000000", "--out", work / "stopped"], stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    p.send_signal(signal.SIGINT)
    text = p.stdout.read()
    check("Ctrl-C keeps the fit so far", p.wait(60) == 130 and "stopped after" in text and (work / "stopped" / "view_3.png").exists(), p.returncode)
    (work / "file").write_text("")
    refused("a file as the folder", [*small, "--out", work / "file"], "file", status=1)
    for option, value in (("--gaussians", "15"), ("--width", "5000"), ("--height", "-1"), ("--steps", "0"), ("--turntable", "many")):
        refused(f"{option} {value}", [option, value], option, value)
    refused("an unknown option", ["--speed", "2"], "--speed")
    refused("an option without a value", ["--steps"], "--steps")


check("--help", run("--help").stdout.startswith(f"usage: {PART}"))
with tempfile.TemporaryDirectory() as temporary:
    {"listen": listen, "neighbours": neighbours, "splat": splat}[PART](pathlib.Path(temporary))
