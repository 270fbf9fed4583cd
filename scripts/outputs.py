"""What scripts in Python write: no file that they read, whatever name or link leads to it, and whole or not at all."""
import os
import sys
import threading


def identity(path):
    """What a path leads to: the file, or where there is none, its folder and its name in it."""
    try:
        s = os.stat(path)
        return s.st_dev, s.st_ino
    except OSError:
        pass
    try:
        s = os.stat(os.path.dirname(path) or ".")
        return s.st_dev, s.st_ino, os.path.basename(path)
    except OSError:
        return (os.path.realpath(path),)


def same(written, read):
    """The first of `written` that is one of `read` or another of `written`, and that one; or None."""
    seen = {identity(path): path for path in read}
    for path in filter(None, written):
        other = seen.setdefault(identity(path), path)
        if other is not path:
            return path, other
    return None


def refuse(written, read):
    """Ends the script (2) where a file would be written over; for those that have no errors of their own."""
    found = same(written, read)
    if found:
        print("'%s' and '%s' are the same file, which would be overwritten; nothing was touched" % found, file=sys.stderr)
        sys.exit(2)


def write_whole(path, text, newline=None):
    """OSError where it cannot be. A file that is replaced keeps its mode; a link stays, and its target is replaced."""
    path = os.path.realpath(path)
    temporary = f"{path}.tmp-{os.getpid()}-{threading.get_ident()}"
    try:
        old = os.stat(path).st_mode & 0o777
    except OSError:
        old = None
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if old is None else 0o600), "w", encoding="utf-8", newline=newline) as f:
            f.write(text)
            f.flush()
            if old is not None:
                os.fchmod(f.fileno(), old)
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
