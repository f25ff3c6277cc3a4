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

/* A sum over all that the preloaded library has of its own to write: mappings of its file, and the nameless one behind them, of
 * what begins as zero; 1 without it. */
static unsigned long statics(void) {
    unsigned long sum = 1, from, to, end = 0;
    char line[512], rights[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3) continue;
        if (!strstr(line, "libweir.so") && (from != end || strchr(line, '/'))) continue;
        end = to;
        if (rights[1] != 'w') continue;
        for (unsigned char *at = (void *)from; at < (unsigned char *)to; at++) sum = sum * 31 + *at;
    }
    if (maps) fclose(maps);
    return sum;
}

/* Starts others in the two ways that do not copy the process, then one that lists what it was given. A vforked child has its
 * parent's memory: it looks up and asks, becomes another program or ends. */
static int spawns(int count) {
    int failed = 0, status;
    start();
    int version = 0;
    CALL(cuDriverGetVersion, &version);
    look_up("cuMemAlloc_v2");
    unsigned long before = statics();
    for (int at = 0; at < count; at++) {
        pid_t child = vfork();
        if (!child) {
            look_up("cuMemAlloc_v2");
            CALL(cuDriverGetVersion, &version);
            if (at % 100 == 0) execl("/bin/sh", "sh", "-c", "exit 5", NULL);
            _exit(at & 0x7f);
        }
        waitpid(child, &status, 0);
        failed += WEXITSTATUS(status) != (at % 100 ? at & 0x7f : 5);
    }
    failed += statics() != before;
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
