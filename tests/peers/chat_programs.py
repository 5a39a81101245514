# SPDX-License-Identifier: Apache-2.0
"""Random templates: statements and expressions of the whole language over a few variables, most of which run."""

TEXTS = ["", "a", "Hello World", "  padded\t", "x,y,,z", "it's \"q\"", "line\nline two\n", "\u00c4\u00df\u03a3 \u4f60\u597d", "<b>&</b>", "42", "-7", "3.5", "1e3", "AbC-d e"]
NAMES = ["n", "s", "l", "d", "b", "f", "none_value", "messages", "words"]
TEXT_FILTERS = ["upper", "lower", "title", "capitalize", "trim", "string", "length", "reverse", "list", "first", "last", "safe",
                "escape", "indent(2)", "indent(1, true)", "replace('l', 'L')", "replace('a', 'b', 1)", "default('z')", "int", "float",
                "wordcount", "urlencode", "truncate(6, true)", "center(12)", "trim('Ha')", "tojson", "forceescape", "count",
                "format(1)", "truncate(9, false, '..', 0)", "default('z', true)", "e", "int(5)", "int(0, 16)"]
LIST_FILTERS = ["length", "first", "last", "join(', ')", "join", "list", "sort", "sort(reverse=true)", "unique|list", "reverse|list",
                "map('string')|list", "map('upper')|join('-')", "select|list", "select('string')|list", "reject('none')|list",
                "batch(2)|list", "batch(3, 'x')|list", "slice(2)|list", "slice(3, 0)|list", "tojson", "min", "max", "sum(start=1)",
                "select('in', [1, 'a', 2])|list", "tojson(indent=2)", "string", "map('length')|list", "count"]
DICT_FILTERS = ["length", "items|list", "dictsort", "dictsort(by='value')", "list", "tojson", "tojson(indent=1, sort_keys=true)",
                "dictsort(reverse=true)|list", "string", "tojson(separators=(',', ':'))", "first", "join('+')"]
METHODS = ["strip()", "lstrip()", "rstrip('d')", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "split()", "split(',')",
           "split('l', 1)", "rsplit(',', 1)", "splitlines()", "startswith('a')", "endswith(('d', 'a'))", "find('l')", "rfind('l')",
           "replace('l', '')", "replace('', '.')", "zfill(6)", "center(9, '*')", "ljust(7)", "rjust(7)", "partition(',')",
           "rpartition('l')", "isdigit()", "isalpha()", "isupper()", "islower()", "isspace()", "istitle()", "count('l')", "isalnum()",
           "removeprefix('a')", "removesuffix('d')", "join(['1', '2'])", "format(1, x=2)", "splitlines(true)",
           "split(none, 1)", "isnumeric()", "casefold()", "lstrip(' H')"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "boolean", "true", "false", "integer",
         "float", "odd", "even", "divisibleby(3)", "in [1, 2, 'a']", "eq 1", "sameas none", "upper", "lower", "callable", "escaped",
         "divisibleby 2", "ne 'a'", "ge 2", "lt(3)"]
FORMATS = ["'%s|%r' % (X, X)", "'%5d|%-5d|%05d' % (n, n, n)", "'%.2f' % f", "'%x %o' % (n, n)", "'{}-{}'.format(X, n)",
           "'{0:>6}|{0:<6}|{0:^6}'.format(s)", "'{:.3f} {:,} {:e}'.format(f, n * 1000000, f)", "'{x!r}'.format(x=X)", "'%(a)s' % {'a': X}",
           "'{:+} {:06.1f} {:%}'.format(n, f, f)", "'%s %%' % X", "'{:#x} {:b} {:o}'.format(n, n, n)", "'%g %e' % (f, f)", "'{:5}|{:<5}'.format(n, s)"]


def text(rng):
    made = rng.choice(TEXTS)
    return "'" + made.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t") + "'"


def number(rng):
    return rng.choice(["0", "1", "2", "3", "7", "-1", "-5", "10", "2.5", "0.1", "1e20", "100", "-0.0", "1_000", "1e-7", "0x1F"])


def sequence(rng, depth):
    kind = rng.randrange(6)
    if kind == 0:
        return "l"
    if kind == 1:
        return "words"
    if kind == 2:
        return f"range({rng.choice(['4', '1, 6', '5, 0, -2', '0'])})"
    if kind == 3:
        return f"({expression(rng, depth)}, {expression(rng, depth)})"
    return "[" + ", ".join(expression(rng, depth) for _ in range(rng.randrange(4))) + "]"


def mapping(rng, depth):
    if rng.random() < 0.4:
        return "d"
    if rng.random() < 0.2:
        return f"dict(a={expression(rng, depth)}, k=1)"
    return "{" + ", ".join(f"{text(rng)}: {expression(rng, depth)}" for _ in range(rng.randrange(3))) + "}"


def index(rng):
    part = lambda: rng.choice(["", "0", "1", "2", "-1", "-2", "5"])
    if rng.random() < 0.5:
        return rng.choice(["0", "1", "-1", "2", "9", "'a'"])
    return f"{part()}:{part()}" + (":" + rng.choice(["", "1", "2", "-1"]) if rng.random() < 0.4 else "")


def arithmetic(rng, depth):
    if depth <= 0:
        return rng.choice([number(rng), "n", "f", "true", "s|length", "l|length"])
    if rng.random() < 0.1:  # small exponents: Python's integers have no bound
        return f"({rng.choice(['n', 'f', number(rng)])} ** {rng.choice(['2', '-2', '0', '3'])})"
    return f"({arithmetic(rng, depth - 1)} {rng.choice(['+', '-', '*', '/', '//', '%', '+'])} {rng.choice(['2', '3', '0.5', '-2', 'n', number(rng)])})"


def expression(rng, depth=2):
    if depth <= 0:
        return rng.choice([text(rng), number(rng), rng.choice(NAMES), "true", "false", "none", "missing_name"] if rng.random() < 0.9
                          else ["'a' 'b'", "\"\\u00e9\\x41\\n\"", "'\\d\\''"])
    below = lambda: expression(rng, depth - 1)
    kind = rng.randrange(20)
    if kind == 0:
        return f"({below()} {rng.choice(['~', '~', '+'])} {below()})" if rng.random() < 0.8 else f"({rng.choice([text(rng), 'l', 'words'])} * {rng.choice(['2', '0', '-1', 'true'])})"
    if kind < 3:
        return arithmetic(rng, depth - 1)
    if kind == 3:
        return rng.choice([
            f"({below()} {rng.choice(['==', '!='])} {below()})", f"({below()} {rng.choice(['in', 'not in'])} {sequence(rng, depth - 1)})",
            f"({arithmetic(rng, depth - 1)} {rng.choice(['<', '<=', '>', '>='])} {number(rng)})", f"({text(rng)} {rng.choice(['<', 'in', '>='])} {text(rng)})",
            f"([{below()}, 1] {rng.choice(['<', '>'])} [{below()}])"])
    if kind == 4:
        return f"({below()} {rng.choice(['and', 'or'])} {below()})"
    if kind == 5:
        return f"(not {below()})"
    if kind == 6:
        return f"({below()} if {below()} else {below()})" if rng.random() < 0.8 else f"({below()} if {below()})"
    if kind in (7, 8):
        return f"({text(rng) if rng.random() < 0.7 else below()} | {rng.choice(TEXT_FILTERS)})"
    if kind in (9, 10):
        return f"({rng.choice(['l', 'words', 'messages', '[3, 1, 2]', 'range(5)', sequence(rng, depth - 1)])} | {rng.choice(LIST_FILTERS)})"
    if kind == 11:
        return f"({mapping(rng, depth - 1)} | {rng.choice(DICT_FILTERS)})"
    if kind in (12, 13):
        return f"{rng.choice([text(rng), 's', 'words[0]'])}.{rng.choice(METHODS)}"
    if kind == 14:
        return f"({below()} is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind == 15:
        return f"({rng.choice([sequence(rng, depth - 1), text(rng), 's'])})[{index(rng)}]"
    if kind == 16:
        return rng.choice([sequence, mapping])(rng, depth - 1)
    if kind == 17:
        return rng.choice(["d.a", "d['k']", "d.get('z')", "d.get('z', 1)", "d.items()", "d.keys()|list", "d.values()|list", "d.missing", "l.missing",
                           "messages[0].content", "messages[-1]['role']", "d.items is defined", "n.real_missing", "s[0].upper()",
                           "messages|map(attribute='role')|list", "messages|selectattr('role', 'equalto', 'user')|list|length",
                           "messages|rejectattr('content')|list", "messages|groupby('role')", "messages|sort(attribute='content')|map(attribute='content')|list",
                           "messages|map(attribute='zz', default='d')|join", "namespace(a=1).a", "l|sum(start=1)", "words|join('/')|upper",
                           "messages|unique(attribute='role')|list", "messages|max(attribute='content')", "l.index(2)", "l.count(1)"])
    if kind == 18:
        return "(" + rng.choice(FORMATS).replace("X", below()) + ")"
    return f"(1 < {number(rng)} <= {below()})" if rng.random() < 0.2 else f"{rng.choice('-+')}{number(rng).lstrip('-')}"


def tag(rng, content):
    left, right = rng.choice(["", "", "", "-", "+"]), rng.choice(["", "", "", "-", "+"])
    return "{%" + left + " " + content + " " + right + "%}"


def shown(rng, depth=2):
    return "{{" + rng.choice(["", "", "-"]) + " " + expression(rng, depth) + " " + rng.choice(["", "", "-"]) + "}}"


def gap(rng):
    return rng.choice(["", "\n", " ", "\n  ", "  \n", "text", " text\n", "\n\n", "\t", "{# a comment #}", "\n  {#- stripped -#}\n", "\r\n"])


def block(rng, depth, inside_loop=False):
    return "".join(gap(rng) + statement(rng, depth, inside_loop) for _ in range(rng.randrange(1, 4))) + gap(rng)


def statement(rng, depth, inside_loop=False):
    kind = rng.randrange(16) if depth > 0 else rng.randrange(7)
    t = lambda content: tag(rng, content)
    body = lambda loop=inside_loop: block(rng, depth - 1, loop)
    if kind < 5:
        return shown(rng)
    if kind == 5:
        return t(f"set {rng.choice(['x', 'y', 'x, y'])} = {rng.choice([expression(rng), '1, 2'])}")
    if kind == 6:
        return rng.choice([t("set ns = namespace(c=0, t='')") + t("set ns.c = ns.c + 1") + "{{ ns.c }}",
                           t("raw") + " {{ raw }} {% x %} " + t("endraw"), "{{ loop.index if loop is defined }}", t("print s, n")])
    if kind in (7, 8):
        made = t(f"if {expression(rng)}") + body()
        if rng.random() < 0.4:
            made += t(f"elif {expression(rng)}") + body()
        if rng.random() < 0.5:
            made += t("else") + body()
        return made + t("endif")
    if kind in (9, 10, 11):
        target, source = rng.choice([("x", sequence(rng, 2)), ("k, v", "d.items()"), ("m", "messages"), ("x", "s"), ("x", "d"), ("k, v", "d|dictsort")])
        test = f" if {rng.choice(['x', 'loop is undefined', expression(rng, 1)])}" if rng.random() < 0.3 else ""
        inner = body(True)
        inner += rng.choice(["", "{{ loop.index }}/{{ loop.length }} ", "{{ loop.first }}{{ loop.last }}", "{{ loop.revindex0 }}{{ loop.cycle('a', 'b') }}",
                             "{{ loop.previtem is defined }}{{ loop.nextitem }}", "{{ loop.changed(x) }}", "{{ loop.depth }}"])
        if rng.random() < 0.2:
            inner += t("if loop.index > 1") + t(rng.choice(["break", "continue"])) + t("endif") + "after"
        made = t(f"for {target} in {source}{test}") + inner
        if rng.random() < 0.3:
            made += t("else") + body()
        return made + t("endfor")
    if kind == 12:
        name = rng.choice(["m1", "m2"])
        return (t(f"macro {name}(a, b=2{rng.choice(['', ', c=n'])})") + block(rng, depth - 1) + "{{ a }}{{ b }}" + rng.choice(["", "{{ varargs }}", "{{ kwargs }}"])
                + t("endmacro") + "{{ " + name + rng.choice(["(1)", "('x', b='y')", "()", "(1, 2, 3)", "(*[1, 2])", "(**{'a': 3})", "(1, z=4)"]) + " }}")
    if kind == 13:
        return t(f"set x{rng.choice(['', ' | upper', ' | trim | length'])}") + body() + t("endset") + "{{ x }}"
    if kind == 14:
        return rng.choice([
            t(f"filter {rng.choice(['upper', 'trim', 'indent(3)', 'replace(1, 2) | lower'])}") + body() + t("endfilter"),
            t("generation") + block(rng, depth - 1) + t("endgeneration"),
            t(f"with x = {expression(rng, 2)}, y = n") + body() + "{{ x }}" + t("endwith")])
    return (t("macro wrap(a)") + "[{{ caller(a) if caller is defined else '' }}]" + t("endmacro")
            + t("call(z) wrap(n)") + "{{ z }}" + block(rng, depth - 1) + t("endcall"))


def program(rng):
    # They set no variable of the caller: blocks that read one before it is set can find it undefined in Jinja2 3.1.
    return block(rng, rng.randrange(1, 4))


def messages(rng):
    return [{"role": rng.choice(["system", "user", "assistant"]), "content": rng.choice(TEXTS)} for _ in range(rng.randrange(1, 4))]


def variables(rng):
    return {"n": rng.choice([0, 1, 3, -4, 12, 10**6]), "s": rng.choice(TEXTS), "l": rng.choice([[1, 2, 3], [], [2, 1, 1], [0.5, -1, 2], [1, "a", None]]),
            "d": rng.choice([{"a": 1, "k": "v"}, {}, {"b": [1, {"c": None}], "A": True}, {"z": 1.5, "a": {"y": "\u00fc"}}]), "b": rng.random() < 0.5,
            "f": rng.choice([0.5, -2.75, 1e16, 123456.789, 0.1, 3.0, 1e-5]), "none_value": None, "words": rng.choice([["x", "B", "a"], ["one"], ["b", "a", "B"]])}
