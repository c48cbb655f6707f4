"""Processes the harness starts: each has a log, a time limit for everything, and ends with us."""

import atexit
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tty
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SLUICE = Path(os.environ.get("SLUICE", ROOT / "build" / "release" / "sluice"))

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_living = []


class Failure(Exception):
    """What a case found wrong, in words."""


class Unavailable(Failure):
    """A program or file that the case needs is not on this machine."""


def require(good, text):
    """Fails the case with `text` unless `good`."""
    if not good:
        raise Failure(text)


def patient(seconds):
    """A time limit, longer on a machine which is busy with other things: they slow emulated guests
    and busy threads for reasons that are not the product's."""
    return seconds * min(4.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def wait_for(probe, seconds, what, pause=0.02):
    """Waits until probe() returns something true and returns it; a Failure after `seconds`."""
    end = time.monotonic() + patient(seconds)
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds:g} s")
        time.sleep(pause)


class RunDir:
    """A folder for sockets and logs, removed when nothing went wrong."""

    def __init__(self, label):
        # Short: the path of a Unix socket has at most 107 bytes.
        self.path = Path(tempfile.mkdtemp(prefix=f"sluice-{label}-"[:40]))

    def __truediv__(self, name):
        return self.path / name

    def tails(self, lines=12):
        """The ends of all logs, for a report; command lines, which are long, stay in the files."""
        parts = []
        for log in sorted(self.path.glob("*.log")):
            text = log.read_text(errors="replace").splitlines()
            text = [line for line in text if line.strip() and not line.startswith("$ ")]
            if text:
                parts.append(f"--- end of {log} ---\n" + "\n".join(text[-lines:]))
        return "\n".join(parts)

    def remove(self):
        for entry in self.path.rglob("*"):
            if not entry.is_dir():
                entry.unlink(missing_ok=True)
        for entry in sorted(self.path.rglob("*"), reverse=True):
            entry.rmdir()
        self.path.rmdir()


# Set by programs that measure: other work of this machine then gets next to nothing of a core.
prioritized = False


def _prepare():
    """Runs in the new process, in a session of its own, before the program."""
    # A harness that is killed must not leave polling processes behind.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if prioritized:
        prioritize()


def prioritize():
    """Puts this session's processes before those of all others; needs root.

    With autogroup scheduling every session gets an equal share whatever the nice value of its
    processes, so it is the session's own value that counts.
    """
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write("-20")
    except OSError:
        pass  # No autogroups, or no right to it.


class Child:
    """A process we started; its output goes to a log file."""

    def __init__(self, name, argv, log, **popen):
        self.name, self.argv, self.log = name, [str(a) for a in argv], Path(log)
        self._out = open(self.log, "ab")
        self._out.write(("$ " + " ".join(self.argv) + "\n").encode())
        self._out.flush()
        options = {"stdin": subprocess.DEVNULL, "stdout": self._out, "stderr": subprocess.STDOUT}
        options |= popen
        try:
            self.process = subprocess.Popen(
                self.argv, preexec_fn=_prepare, start_new_session=True, **options
            )
        except FileNotFoundError as error:
            self._out.close()
            raise Unavailable(f"{self.argv[0]} is not on this machine") from error
        _living.append(self)

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.poll() is None

    def check_running(self):
        require(self.running(), f"{self.name} ended with status {self.process.poll()}")

    def output(self):
        return self.log.read_text(errors="replace")

    def signal(self, number):
        if self.running():
            self.process.send_signal(number)

    def kill(self):
        """Ends it at once, as a crash would."""
        self.signal(signal.SIGKILL)
        self._reap(patient(5))

    def terminate(self, seconds=10):
        """Asks it to end; returns its exit status. A Failure if it had to be killed."""
        self.signal(signal.SIGTERM)
        try:
            return self._reap(patient(seconds))
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise Failure(f"{self.name} did not end {seconds} s after SIGTERM") from error

    def _reap(self, seconds):
        status = self.process.wait(seconds)
        if self in _living:
            _living.remove(self)
        self._out.close()
        return status


class Dialogue(Child):
    """A process with a command line of its own, on a pseudo-terminal so that it does not buffer.

    What it says on standard error goes to a log of its own: other threads write there, and a line
    in the middle of a prompt would hide it.
    """

    def __init__(self, name, argv, log, prompt, **popen):
        self.prompt, self._text, self._changed = prompt, "", threading.Condition()
        self._master, slave = os.openpty()
        tty.setraw(slave)
        self.errors = Path(log).with_suffix(".errors.log")
        try:
            with open(self.errors, "ab") as errors:
                super().__init__(
                    name, argv, log, stdin=slave, stdout=slave, stderr=errors, close_fds=True,
                    **popen,
                )
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self):
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                data = b""
            with self._changed:
                if data:
                    self._text += data.decode(errors="replace")
                self._changed.notify_all()
            if not data:
                return
            with open(self.log, "ab") as log:
                log.write(data)

    def expect(self, text, seconds, start=0):
        """The output from `start` to the end of `text`, once that has appeared."""
        end = time.monotonic() + patient(seconds)
        with self._changed:
            while True:
                at = self._text.find(text, start)
                if at >= 0:
                    return self._text[start : at + len(text)]
                if not self.running():
                    raise Failure(f"{self.name} ended with status {self.process.poll()}")
                left = end - time.monotonic()
                require(left > 0, f"{self.name}: no {text!r} within {seconds:g} s")
                self._changed.wait(min(left, 0.1))

    def command(self, line, seconds=20):
        """Types a line and returns what it printed up to the next prompt."""
        with self._changed:
            start = len(self._text)
        self.type(line)
        return self.expect(self.prompt, seconds, start)

    def type(self, line):
        os.write(self._master, (line + "\n").encode())

    def text(self):
        """All it said, on standard output and then on standard error."""
        with self._changed:
            return self._text + self.errors.read_text(errors="replace")

    def _reap(self, seconds):
        status = super()._reap(seconds)
        self._reader.join(2)
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
        return status


def run(argv, seconds=20, check=True):
    """Runs a short command and returns its standard output; a Failure if it fails."""
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=patient(seconds), check=False,
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{argv[0]} is not on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{' '.join(argv)}: no answer within {seconds} s") from error
    if check and done.returncode != 0:
        raise Failure(
            f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout).strip()}"
        )
    return done.stdout


def readable(fd, seconds):
    return bool(select.select([fd], [], [], seconds)[0])


def end_all():
    """Kills what is still running; called when a case is over, and at exit."""
    for child in list(_living):
        try:
            child.kill()
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"could not end {child.name} ({child.pid}): {error}", file=sys.stderr)


def install_signal_handlers():
    """Turns SIGTERM into an exception, so that `finally` clauses run."""

    def stop(number, _frame):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)


atexit.register(end_all)
