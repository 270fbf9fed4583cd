"""completions.py SHELL FOLDER SCRATCH: types lines with a Tab into an interactive shell; prints for each the line, what
it should have become and what it became, with tabs between."""
import os
import pty
import re
import select
import sys
import time

# What is typed before Tab, and what the program is given then.
LINES = [
    ("thermo-plan sol", "solve"),
    ("thermo-plan solve --descr", "solve --description"),
    ("thermo-plan solve --cost pap", "solve --cost paper"),
    ("thermo-plan solve --form two", "solve --form two-phase"),
    ("thermo-plan check alp", "check alpha.json"),
    ("thermo-plan solve --traces alp", "solve --traces alpha.json"),
    ("thermo-plan solve --context alp", "solve --context alp"),
    ("thermo-plan report --corr", "report --corr"),
    ("thermo-run generate --kv f1", "generate --kv f16"),
    ("thermo-run generate --kv=f1", "generate --kv=f16"),
    ("thermo-profile show two", "show two words.h5"),
    ("thermo-profile hard", "hardware"),
    ("thermo-pack --vers", "--version"),
    ("thermo-serve --conn", "--connections"),
    ("thermo-serve --model alp", "--model alpha.json"),
    ("thermocline run --run-fl", "run --run-flags"),
    ("thermocline run alp", "run alpha.json"),
]


def start(shell, folder, scratch):
    os.makedirs(scratch + "/work/home", exist_ok=True)
    for name in ("alpha.json", "two words.h5"):
        open(f"{scratch}/work/{name}", "w").close()
    names = sorted({line.split()[0] for line, _ in LINES})
    rc = scratch + "/rc." + shell
    with open(rc, "w") as f:
        for n in names:
            if shell == "fish":
                f.write(f"function {n}; echo \"<<$argv>>\"; end\nsource {folder}/{n}.fish\n")
            else:
                f.write(f"{n}() {{ echo \"<<$*>>\"; }}\n")
        if shell == "bash":
            f.write("PS1='ready'\n" + "".join(f"source {folder}/{n}.bash\n" for n in names))
        elif shell == "zsh":
            os.makedirs(scratch + "/fpath", exist_ok=True)
            for n in names:
                os.symlink(f"{folder}/{n}.zsh", f"{scratch}/fpath/_{n}")
            f.write(f"PS1=ready\nunsetopt prompt_sp\nfpath=({scratch}/fpath $fpath)\nautoload -U compinit\n"
                    f"compinit -u -d {scratch}/zcompdump\n")
        else:
            f.write("function fish_prompt; echo -n ready; end\nfunction fish_right_prompt; end\nset fish_greeting\n")
    command = {"bash": ["bash", "--noprofile", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"],
               "fish": ["fish", "--no-config", "-i"]}[shell]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(scratch + "/work")
        os.environ.update(HOME=scratch + "/work/home", TERM="dumb" if shell != "fish" else "xterm", LC_ALL="C.UTF-8",
                          XDG_DATA_HOME=scratch + "/x", XDG_CONFIG_HOME=scratch + "/x", HISTFILE="/dev/null")
        os.execvp(command[0], command)
    return pid, fd, f"source {rc}\n"


def read_until(fd, pattern, seconds=120):
    seen = ""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([fd], [], [], 1)[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:
                return None
            seen += data.decode(errors="replace")
            found = re.search(pattern, seen)
            if found:
                return found
    return None


def main():
    if sys.argv[1] == "count":
        print(len(LINES))
        return
    shell, folder, scratch = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3] + "/" + sys.argv[1]
    os.makedirs(scratch)
    pid, fd, source = start(shell, folder, scratch)
    os.write(fd, source.encode())
    os.write(fd, b"echo be\"\"gin\n")
    if not read_until(fd, "begin\r"):
        sys.exit(f"{shell} did not start")
    for line, want in LINES:
        os.write(fd, line.encode() + b"\t\n")
        found = read_until(fd, r"<<(.*?)>>")
        print(line, want, found.group(1).strip() if found else "(no answer)", sep="\t")
    os.write(fd, b"exit\n")
    os.waitpid(pid, 0)


main()
