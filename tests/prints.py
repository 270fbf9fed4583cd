"""Who prints past common/base/print.h, and what a message must not have. prints.py [FILE...]: places as FILE:LINE: what; 1 where there is any."""
import re
import subprocess
import sys

# Those that write bytes themselves: print, the log, the progress line (of constants) and standard output as a file.
WRITERS = {'common/base/print.c', 'common/base/log.c', 'common/base/progress.c', 'common/base/file_text.c'}
# Texts for programs, whose %s are constants, numbers and names of ours: SMT-LIB, JSON (strings by report_string), CSV (cells quoted).
TEXTS = re.compile(r'planner/(solve|search|check|planning|cmd_sweep|cmd_check)|runtime/(report|request|results|generate|generate_prompts)\.c')
MARKUP = {'planner/report/page.c', 'common/plan/plan_fields_write.c'}  # formats of their own: HTML, JSON
MESSAGES = r'err_set|err_sys|err_wrap|log_error|log_warn|log_info|log_debug'
CALL = re.compile(r'\b(v?printf|print|print_to|putf?|v?snprintf|puts|putchar|v?fprintf|fputs|fputc|putc|fwrite|dprintf|write|perror|psignal|' + MESSAGES + r')\s*\(')
STANDARD = re.compile(r'\b(stdout|stderr|STDOUT_FILENO|STDERR_FILENO)\b')
# A real that JSON gets: of a key, or the next of an array.
REAL = r'%[-+ #0]*[\d*]*(?:\.[\d*]+)?[aefgAEFG]'
JSON_REAL = re.compile(r'\\"[^"\\]*\\":\s*\[?' + REAL + r'|^\[' + REAL + r'|^(?:,|%s)' + REAL + '$')
LIMIT = re.compile(r'the limit is %|(?<!more than 1 and )at most %\w+ (are|is) (accepted|possible|read)')
MACRO = re.compile(r'"\s*PRI[diuxX](8|16|32|64|MAX|PTR)')
ODD = re.compile(r'%(?![-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:(?:hh?|ll?|[zjt])?[diuxXo]|[scfeEgGF%]))(.{0,4})')
LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')


def blank(text):
    """Comments as blanks, line ends kept; strings and characters stay."""
    return re.sub(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|/\*.*?\*/|//[^\n]*',
                  lambda m: m.group() if m.group()[0] in '"\'' else re.sub(r'[^\n]', ' ', m.group()), text, flags=re.S)


def arguments(text, at):
    """The arguments of the call whose parenthesis is before text[at]."""
    out, depth, start = [], 0, at
    while at < len(text):
        c = text[at]
        if c in '"\'':
            end = at + 1
            while text[end] != c:
                end += 2 if text[end] == '\\' else 1
            at = end
        elif c in '([{':
            depth += 1
        elif c in ')]}':
            depth -= 1
            if depth < 0:
                return out + [text[start:at].strip()]
        elif c == ',' and depth == 0:
            out.append(text[start:at].strip())
            start = at + 1
        at += 1
    return out


def faults(path, text):
    text = blank(text)
    for m in CALL.finditer(text):
        name, args = m.group(1), arguments(text, m.end())
        literals = ''.join(s[1:-1] for a in args for s in LITERAL.findall(a))
        line = text.count('\n', 0, m.start()) + 1
        standard = any(STANDARD.search(a) for a in args)
        if re.fullmatch(MESSAGES + '|print|print_to', name):
            at = {'err_set': 2, 'err_sys': 2, 'err_wrap': 1, 'print_to': 1}.get(name, 0)  # of the format
            for odd in ODD.findall(''.join(LITERAL.findall(MACRO.sub('llu"', ''.join(args[at:at + 1])))).replace('""', '').replace('%%', '')):
                yield line, '%' + odd + ': no conversion that common/base/print.c has'
        if re.fullmatch(MESSAGES, name):
            if '\\n' in literals.replace('\\\\', ''):
                yield line, 'a message is one line'
            if LIMIT.search(literals):
                yield line, 'of sizes: X, more than the limit of Y'
        elif path in WRITERS:
            continue
        elif any(JSON_REAL.search(''.join(s[1:-1] for s in LITERAL.findall(a))) for a in args) and name != 'print_json_to':
            yield line, name + ' of a real of JSON, which may be no number: print_json_to (common/base/print.h), or js.h'
        elif name == 'vsnprintf' and path not in MARKUP:
            yield line, 'vsnprintf: print_into_va, which has all digits of a count (common/base/print.h)'
        elif name in ('perror', 'psignal'):
            yield line, name + ': errors are values (err.h), printed by the log'
        elif name in ('printf', 'vprintf', 'putchar', 'dprintf') and not re.match(r'(int|void)\b', args[0] if args else ''):
            yield line, name + ': print, which escapes (common/base/print.h)'
        elif name in ('fprintf', 'vfprintf', 'fwrite', 'write') and standard:
            yield line, name + ' to a standard stream: print, print_to or print_data (common/base/print.h)'
        elif name in ('puts', 'fputs', 'fputc', 'putc') and (standard or name == 'puts') and not re.fullmatch(
                r'(' + LITERAL.pattern + r'\s*)+|\'(\\.|.)\'', args[0] if args else ''):
            yield line, name + ' of what is no constant: print (common/base/print.h)'
        elif name == 'fprintf' and '%s' in literals and not TEXTS.match(path):
            yield line, 'fprintf of text: print_to, which escapes (common/base/print.h)'


def main():
    files = sys.argv[1:] or subprocess.run(['git', 'ls-files', 'common', 'profiler', 'planner', 'packer', 'runtime', 'server', 'datasets'],
                                           capture_output=True, text=True, check=True).stdout.split()
    bad = 0
    for path in files:
        if path.endswith('.c') or sys.argv[1:]:
            try:
                with open(path, encoding='utf-8') as f:
                    text = f.read()
            except FileNotFoundError:
                continue
            for line, what in faults(path, text):
                print('%s:%d: %s' % (path, line, what))
                bad = 1
    return bad


sys.exit(main())
