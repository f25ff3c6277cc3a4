/* A program with signal handlers and timers of its own, interrupted while it launches. */
#include "cuda.h"
#include <sys/time.h>

static atomic_int caught;
static void handler(int signal) { caught += signal != 0; }

int main(void) {
    static const int mine[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE, SIGCHLD, SIGPROF, SIGTERM};
    enum { SIGNALS = sizeof mine / sizeof *mine };
    struct sigaction action = {.sa_handler = handler}, seen;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    int failed = 0, changed = 0, spoilt = 0;
    for (int at = 0; at < SIGNALS; at++) sigaction(mine[at], &action, NULL);
    start();
    setitimer(ITIMER_REAL, &often, NULL);
    for (int at = 0; at < 20000; at++) {
        errno = 77;
        failed += launch() != 0;
        spoilt += errno != 77;
    }
    setitimer(ITIMER_REAL, &never, NULL);
    for (int at = 0; at < SIGNALS; at++) {
        sigaction(mine[at], NULL, &seen);
        changed += seen.sa_handler != handler;
    }
    printf("failed %d spoilt %d changed %d interrupted %d\n", failed, spoilt, changed, caught > 0);
    return 0;
}
