# Which questions find RM clients and their makers, and what each writes into the kernel log. Root, one NVIDIA GPU.
import ctypes as C, errno, fcntl, os, select, signal, struct, subprocess, sys, time
CH = """
import ctypes as C,sys,time
l=C.CDLL('libcuda.so.1');d=C.c_int();c=C.c_void_p();p=C.c_uint64()
for r in (l.cuInit(0),l.cuDeviceGet(C.byref(d),0),l.cuDevicePrimaryCtxRetain(C.byref(c),d),l.cuCtxSetCurrent(c),l.cuMemAlloc_v2(C.byref(p),C.c_size_t(1<<24))): assert r==0,r
if sys.argv[1]=='nvml': C.CDLL('libnvidia-ml.so.1').nvmlInit_v2()
print('up',flush=True)
while 1: l.cuMemsetD8_v2(p,C.c_ubyte(1),C.c_size_t(1<<24)); l.cuCtxSynchronize(); time.sleep(.01)
"""
libc = C.CDLL(None, use_errno=True); K = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK); os.lseek(K, 0, os.SEEK_END)
def logged():
    n, first = 0, ""
    while 1:
        try: line = os.read(K, 8192).decode("utf-8", "replace")
        except BlockingIOError: return f"log={n} {first}"
        except OSError as e:
            if e.errno == errno.EPIPE: continue
            return f"kmsg {e}"
        if "NVRM" in line or "nvidia" in line: n += 1; first = first or line.split(";", 1)[-1].strip()[:150]
def show(name, f):
    logged(); t = time.perf_counter()
    try: out = f()
    except Exception as e: out = f"EXC {type(e).__name__} {e}"
    print(f"{name:52s} {out} | {1e3*(time.perf_counter()-t):.2f} ms {logged()}", flush=True); return out
def io(fd, nr, b): fcntl.ioctl(fd, 3 << 30 | len(b) << 16 | 0x46 << 8 | nr, b, True); return b
def control(fd, cl, ob, cmd, par):
    v = (C.c_char * len(par)).from_buffer(par); b = bytearray(struct.pack("<IIIIQII", cl, ob, cmd, 0, C.addressof(v), len(par), 0))
    return struct.unpack_from("<I", io(fd, 0x2A, b), 28)[0]
def client(fd): b = bytearray(struct.pack("<IIIIQQIIII", 0, 0, 0, 0x41, 0, 0, 0, 0, 0, 0)); io(fd, 0x2B, b); return struct.unpack_from("<I", b, 8)[0]
def share(fd, cl): return struct.unpack_from("<I", io(fd, 0x35, bytearray(struct.pack("<IIIIHBxI", cl, 0, 0, 0, 0, 0, 0))), 20)[0]
def dup(fd, cl): return struct.unpack_from("<I", io(fd, 0x34, bytearray(struct.pack("<7I", cl, 0, 0, cl, 0, 0, 0))), 24)[0]
def info(fd, cl, ob, i=2): p = bytearray(struct.pack("<IIII", ob, i, 0, 0)); return control(fd, cl, cl, 0xD02, p), struct.unpack_from("<I", p, 8)[0]
def child(fd, cl, par, k): p = bytearray(struct.pack("<III", par, k, 0)); return control(fd, cl, cl, 0xD05, p), struct.unpack_from("<I", p, 8)[0]
def rights(fd, cl, other): p = bytearray(struct.pack("<III", other, other, 0)); s = control(fd, cl, cl, 0xD03, p); return f"{s:#x} mask={struct.unpack_from('<I', p, 8)[0]:#x}"
def pids(fd, cl, sub, k):
    p = bytearray(12 + 4 * 950); struct.pack_into("<III", p, 0, 0, k, 0); s = control(fd, cl, sub, 0x2080018D, p); n = struct.unpack_from("<I", p, 8)[0]
    return f"{s:#x} {list(struct.unpack_from(f'<{min(n, 950)}I', p, 12))}"
def fds(pid): return [int(f) for f in os.listdir(f"/proc/{pid}/fd") if os.path.exists(f"/proc/{pid}/fd/{f}") and os.readlink(f"/proc/{pid}/fd/{f}") == "/dev/nvidiactl"]
def start(how):
    p = subprocess.Popen([sys.executable, "-c", CH, how], stdout=subprocess.PIPE)
    assert select.select([p.stdout], [], [], 9)[0] and p.stdout.readline() == b"up\n", "no CUDA program"
    return p
def scan(fd, n, ask=share):
    t, codes, hit = time.perf_counter(), {}, []
    for h in range(new, new - n, -1):
        s = ask(fd, h); codes[hex(s)] = codes.get(hex(s), 0) + 1; hit += [h] if s == ours else []
    return hit, codes, f"{1e6*(time.perf_counter()-t)/n:.2f} us each"
mine = os.open("/dev/nvidiactl", os.O_RDWR); own = client(mine)
print("driver", open("/sys/module/nvidia/version").read().strip(), "own client", hex(own), "pid", os.getpid(), logged())
progs = [start("nvml"), start("plain")]; print("programs", [p.pid for p in progs], logged())
new_fd = os.open("/dev/nvidiactl", os.O_RDWR); new = client(new_fd); os.close(new_fd); ours = share(mine, own)
for n, ask in (("RM_SHARE", share), ("DUP_OBJECT", dup)):
    show(n + " own client, object 0", lambda: hex(ask(mine, own)))
    show(n + " absent client", lambda: hex(ask(mine, 0xC1DFFFF0)))
show("RM_CONTROL absent client (today)", lambda: info(mine, 0xC1DFFFF0, 0xC1DFFFF0))
copies = {p.pid: [(fd, libc.syscall(438, os.pidfd_open(p.pid), fd, 0)) for fd in fds(p.pid)] for p in progs}; print(copies)
found = {p.pid: [] for p in progs}
for p in progs:
    for fd, copy in copies[p.pid]:
        r = show(f"scan by RM_SHARE pid {p.pid} fd {fd}", lambda: scan(copy, 4096)); found[p.pid].extend((copy, h) for h in r[0])
        show(f"own client through pid {p.pid} fd {fd} (wrong file)", lambda: (hex(share(copy, own)), hex(dup(copy, own))))
print({p: [hex(h) for _, h in c] for p, c in found.items()})
for p in progs:
    for copy, h in found[p.pid]:
        show(f"{h:#x} class, absent object, child of absent", lambda: (info(copy, h, h), info(copy, h, 0x5C00FFFF), child(copy, h, 0x5C00FFFF, 0xE0AC20)))
        show(f"{h:#x} slice / preempt / off of an absent TSG", lambda: [hex(control(copy, h, 0x5C00FFFF, c, bytearray(n))) for c, n in ((0xA06C0104, 8), (0xA06C0105, 8))])
        show(f"{h:#x} control through a wrong file", lambda: info(mine, h, h))
        for q, c in found.items():
            for _, o in c: show(f"{h:#x} of {p.pid}: rights on {o:#x} of {q}", lambda: rights(copy, h, o))
        show(f"own client: rights on {h:#x}", lambda: rights(mine, own, h))
        s, dev = child(copy, h, h, 0xE0AC20); s, sub = child(copy, h, dev, 0x4B01B3) if dev else (1, 0)
        if sub:
            for k in (0x2080, 0xCBC0, 0x90DE): show(f"{h:#x} GET_PIDS class {k:#x} (not {os.getpid()}?)", lambda: pids(copy, h, sub, k))
            show(f"{h:#x} FB_GET_CLIENT_ALLOCATION_INFO", lambda: hex(control(copy, h, sub, 0x20801349, bytearray(32))))
show("kill the first program, duplicates open", lambda: (progs[0].kill(), progs[0].wait(), time.sleep(.3))[1])
show("GET_PIDS after death, by the second", lambda: [pids(c, h, child(c, h, child(c, h, h, 0xE0AC20)[1], 0x4B01B3)[1], 0x2080) for c, h in found[progs[1].pid] if child(c, h, h, 0xE0AC20)[1]])
show("close the duplicates", lambda: ([os.close(c) for c, in [(x[1],) for x in copies[progs[0].pid]]], time.sleep(1))[0])
show("the dead program's client: RM_SHARE", lambda: [hex(share(mine, h)) for _, h in found[progs[0].pid]])
progs[1].kill(); progs[1].wait(); print("end", logged())
