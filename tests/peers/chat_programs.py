def program(r): return ''
