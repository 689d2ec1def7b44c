
// Appended to a checker: without the judge's variable the program prints itself, so that it is
// compiled once and can be kept; with it, it reports that it was loaded. No header but that of the
// numbers, which has no names that a checker could use.
#include <sys/syscall.h>
extern "C" long syscall(long, ...) noexcept;
extern "C" char *getenv(const char *) noexcept;
static __attribute__((constructor(101))) void plumbline_checker_start() {
    const char *ready = getenv("CHECKER_STARTED_FD");
    if (ready) {
        int descriptor = 0;
        for (; *ready; ready++) descriptor = 10 * descriptor + (*ready - '0');
        syscall(SYS_write, descriptor, "!", 1L);
        syscall(SYS_close, descriptor);
        return;
    }
    static char part[65536];
    long size, file = syscall(SYS_openat, -100, "/proc/self/exe", 0);
    while ((size = syscall(SYS_read, file, part, sizeof part)) > 0)
        for (long done = 0, wrote; done < size; done += wrote)
            if ((wrote = syscall(SYS_write, 1, part + done, size - done)) <= 0)
                syscall(SYS_exit_group, 1);
    syscall(SYS_exit_group, size == 0 ? 0 : 1);
}
