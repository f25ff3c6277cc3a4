/* Programs that become others, or start them. */
#include "cuda.h"
#include <spawn.h>

extern char **environ;

/* Uses the GPU, then becomes itself, so many times. */
static int execs(int left, char **argv) {
    char number[16];
    start();
    must_allocate(16 << 20);
    if (left == 0) {
        printf("pid %d\n", getpid());
        fflush(stdout);
        getchar();
        return 0;
    }
    snprintf(number, sizeof number, "%d", left - 1);
    execl("/proc/self/exe", argv[0], argv[1], number, NULL);
    return 5;
}

/* Starts others in the two ways that do not copy the process, then one that lists what it was given. */
static int spawns(int count) {
    int failed = 0, status;
    start();
    for (int at = 0; at < count; at++) {
        pid_t child = vfork();
        if (!child) _exit(at & 0x7f);
        waitpid(child, &status, 0);
        failed += WEXITSTATUS(status) != (at & 0x7f);
    }
    for (int at = 0; at <= count; at++) {
        char *program[] = {"true", NULL}, *list[] = {"sh", "-c", "ls -1 /proc/self/fd | wc -l", NULL};
        pid_t child;
        char **which = at == count ? list : program;
        failed += posix_spawnp(&child, which[0], NULL, NULL, which, environ) != 0;
        waitpid(child, &status, 0);
        failed += WEXITSTATUS(status) != 0;
    }
    printf("failed %d launched %d\n", failed, launch());
    return 0;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "execs")) return execs(count_of(argv), argv);
    return spawns(count_of(argv));
}
