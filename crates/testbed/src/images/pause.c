/* The sandbox process: reaps the orphans of a shared PID namespace and ends at once on SIGTERM
 * or SIGINT. Freestanding, so that the image is one file of a few kilobytes. Signals are blocked
 * and awaited: PID 1 ignores a signal that is neither handled nor blocked. */

#if defined(__x86_64__)
enum { SYS_wait4 = 61, SYS_exit_group = 231, SYS_rt_sigprocmask = 14, SYS_rt_sigtimedwait = 128 };
static long call4(long n, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
enum { SYS_wait4 = 260, SYS_exit_group = 94, SYS_rt_sigprocmask = 135, SYS_rt_sigtimedwait = 137 };
static long call4(long n, long a, long b, long c, long d) {
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#else
#error "pause.c knows x86_64 and aarch64"
#endif

enum { SIGINT = 2, SIGTERM = 15, SIGCHLD = 17, WNOHANG = 1, SIG_BLOCK = 0 };

void _start(void) {
    unsigned long set =
        1UL << (SIGINT - 1) | 1UL << (SIGTERM - 1) | 1UL << (SIGCHLD - 1);
    call4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof set);
    for (;;) {
        long signal = call4(SYS_rt_sigtimedwait, (long)&set, 0, 0, sizeof set);
        if (signal == SIGINT || signal == SIGTERM) {
            call4(SYS_exit_group, 0, 0, 0, 0);
        }
        while (call4(SYS_wait4, -1, 0, WNOHANG, 0) > 0) {
        }
    }
}
