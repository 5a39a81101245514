#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unicode_tables.py > unicode_tables.inl: properties and case mappings of characters, from the Unicode database of Python."""
import sys
import unicodedata

# The order of the bits is that of CharFlag in unicode.cpp.
FLAGS = [
    str.isalpha, str.isdecimal, str.isdigit, str.isnumeric, str.isspace, str.isupper, str.islower, str.isprintable,
    str.istitle,
]
LAST = sys.maxunicode + 1


def surrogate(code):
    return 0xD800 <= code < 0xE000


def mask(code):
    if surrogate(code):
        return 0
    c = chr(code)
    bits = sum(bool(flag(c)) << i for i, flag in enumerate(FLAGS))
    # A sigma after a letter is final, unless a letter follows. Characters that this rule ignores show by their effect on it.
    ignorable = ("AΣ" + c + "A").lower()[1] == "σ" and ("AΣ" + c).lower()[1] == "ς"
    cased = ("AΣ" + c).lower()[1] == "σ"
    return bits | ignorable << len(FLAGS) | cased << (len(FLAGS) + 1)


def lines(items, per_line):
    for at in range(0, len(items), per_line):
        yield "    " + " ".join(items[at:at + per_line])


def flags():
    runs, before = [], None
    for code in range(LAST):
        bits = mask(code)
        if bits != before:
            runs.append(f"{{0x{code:X},0x{bits:X}}},")
            before = bits
    print("constexpr FlagRun kFlagRuns[] = {")
    print("\n".join(lines(runs, 8)))
    print("};")


def mappings(name, convert):
    simple, special = [], []
    for code in range(LAST):
        if surrogate(code) or (mapped := convert(chr(code))) == chr(code):
            continue
        if len(mapped) > 1:
            special.append(f'{{0x{code:X},"' + "".join(f"\\x{b:02x}" for b in mapped.encode()) + '"},')
            continue
        delta = ord(mapped) - code
        if simple and simple[-1][3] == delta and (
                code - simple[-1][1] == simple[-1][2] or (simple[-1][0] == simple[-1][1] and code - simple[-1][1] <= 2)):
            first, last, _, _ = simple[-1]
            simple[-1] = (first, code, code - last, delta)
        else:
            simple.append((code, code, 1, delta))
    print(f"constexpr CaseRun k{name}Runs[] = {{")
    print("\n".join(lines([f"{{0x{a:X},0x{b:X},{s},{d}}}," for a, b, s, d in simple], 5)))
    print("};")
    print(f"constexpr CaseText k{name}Texts[] = {{")
    print("\n".join(lines(special, 5)))
    print("};")


print("// SPDX-License-Identifier: Apache-2.0\n// clang-format off")
print(f"// Tables of Unicode {unicodedata.unidata_version}, written by unicode_tables.py.")
flags()
mappings("Lower", str.lower)
mappings("Upper", str.upper)
mappings("Title", str.title)
mappings("Fold", str.casefold)
