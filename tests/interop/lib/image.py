"""Makes the guest: Debian's cloud kernel and a busybox initramfs with an agent that runs commands.

Both are kept in a cache folder, so that only the first run pays for them. Nothing is installed: the
kernel package is downloaded by apt-get and unpacked. SLUICE_GUEST_KERNEL=FOLDER names a folder with
an unpacked linux-image package instead.
"""

import fcntl
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .process import Failure, Unavailable, require, run

MODULES = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "drivers/char/virtio_console",
]
TOOLS = ["iperf3", "ethtool", "ip"]

INIT = """#!/bin/busybox sh
# The guest's first and only program: set up, say so on the console, then run what the host asks.
/bin/busybox --install -s /bin
export PATH=/sbin:/bin HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for m in {modules}; do insmod /modules/$m.ko || echo "insmod $m failed" > /dev/console; done
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
ip link set lo up
for word in $(cat /proc/cmdline); do case $word in
  address=*) ip addr add "${{word#address=}}" dev eth0 ;;
  mtu=*) ip link set eth0 mtu "${{word#mtu=}}" ;;
esac; done
ip link set eth0 up
while :; do [ -e /dev/vport0p1 ] || [ -e /dev/vport1p1 ] && break; sleep 0.1; done
exec 3<>"$(echo /dev/vport*p1)"
# A request is one line, "ID BASE64-OF-A-COMMAND"; so is an answer, "ID STATUS BASE64-OF-OUTPUT".
echo "hello $(cut -d ' ' -f 1 /proc/uptime)" >&3
while :; do
  read -r id request <&3 || {{ sleep 0.1; continue; }}
  [ -n "$request" ] || continue
  echo "$request" | base64 -d > /tmp/request
  sh /tmp/request < /dev/null > /tmp/answer 2>&1 3>&-
  status=$?
  echo "$id $status $(base64 /tmp/answer | tr -d '\\n')" >&3
done
"""


@dataclass
class Image:
    """Files that QEMU boots."""

    kernel: Path
    initrd: Path


def cache_folder():
    """Where downloads are kept: SLUICE_CACHE, else the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("SLUICE_CACHE") or Path(base) / "sluice-interop")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"sluice-interop-{os.getuid()}"
        folder.mkdir(exist_ok=True)
    require(os.access(folder, os.W_OK), f"{folder} cannot be written; set SLUICE_CACHE")
    return folder


def kernel_package():
    """The package that linux-image-cloud-amd64 depends on today."""
    text = run(["apt-cache", "depends", "linux-image-cloud-amd64"])
    found = re.search(r"Depends:\s*(linux-image-\S+-cloud-amd64)", text)
    if not found:
        raise Unavailable("apt-cache knows no linux-image-cloud-amd64; run `apt-get update`")
    return found[1]


def unpacked_kernel(cache):
    """A folder with boot/vmlinuz-* and lib/modules/*."""
    named = os.environ.get("SLUICE_GUEST_KERNEL")
    if named:
        return Path(named)
    present = sorted(cache.glob("linux-image-*-cloud-amd64"))
    if present:
        return present[-1]
    package = kernel_package()
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        try:
            subprocess.run(
                ["apt-get", "-q", "download", package], cwd=scratch, check=True,
                capture_output=True, text=True, timeout=300,
            )
        except subprocess.SubprocessError as error:
            detail = getattr(error, "stderr", "") or str(error)
            raise Unavailable(f"apt-get download {package} failed: {detail.strip()}") from error
        (deb,) = Path(scratch).glob("*.deb")
        run(["dpkg-deb", "-x", deb, Path(scratch) / "root"], 120)
        folder = cache / package
        os.rename(Path(scratch) / "root", folder)
    return folder


def _libraries(program):
    """Shared libraries a program needs, with their paths, the loader among them."""
    text = run(["ldd", program])
    return re.findall(r"(/\S+) \(0x", text)


def _fill(root, kernel):
    """Puts the initramfs tree together below `root`."""
    for folder in ("bin", "sbin", "dev", "proc", "sys", "tmp", "modules", "etc"):
        (root / folder).mkdir()
    busybox = shutil.which("busybox")
    if not busybox:
        raise Unavailable("busybox is not on this machine (package busybox-static)")
    shutil.copy(busybox, root / "bin" / "busybox")
    (modules,) = (kernel / "lib" / "modules").iterdir()
    for module in MODULES:
        shutil.copy(modules / "kernel" / f"{module}.ko", root / "modules")
    for tool in TOOLS:
        path = shutil.which(tool)
        if not path:
            raise Unavailable(f"{tool} is not on this machine")
        shutil.copy(path, root / "sbin")
        for library in _libraries(path):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    init = root / "init"
    init.write_text(INIT.format(modules=" ".join(Path(m).name for m in MODULES)))
    init.chmod(0o755)


def _archive(root):
    """The tree as a compressed cpio archive, as the kernel takes it."""
    names = b"\0".join(str(p.relative_to(root)).encode() for p in sorted(root.rglob("*")))
    done = subprocess.run(
        ["cpio", "--quiet", "-0", "-o", "-H", "newc", "-R", "0:0"], cwd=root, input=names,
        capture_output=True, check=False, timeout=60,
    )
    if done.returncode != 0:
        raise Failure(f"cpio: {done.stderr.decode(errors='replace')}")
    return gzip.compress(done.stdout, 1)


def guest_image():
    """Makes the image, or finds it made; several processes may call this at once."""
    cache = cache_folder()
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kernel = unpacked_kernel(cache)
        (vmlinuz,) = (kernel / "boot").glob("vmlinuz-*")
        # A change of this file, or of a program inside, makes a new image.
        programs = [shutil.which(tool) or "" for tool in (*TOOLS, "busybox")]
        stamp = hashlib.sha256(Path(__file__).read_bytes() + str(vmlinuz).encode())
        for program in filter(None, programs):
            stamp.update(f"{program} {os.stat(program).st_mtime_ns}".encode())
        initrd = cache / f"initrd-{stamp.hexdigest()[:16]}.gz"
        if not initrd.exists():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                root = Path(scratch) / "root"
                root.mkdir()
                _fill(root, kernel)
                fresh = Path(scratch) / "initrd"
                fresh.write_bytes(_archive(root))
                for old in cache.glob("initrd-*.gz"):
                    old.unlink()
                fresh.rename(initrd)
    return Image(vmlinuz, initrd)
