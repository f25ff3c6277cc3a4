/* Children that are forked and do not exec: data loaders, web servers. */
#include "cuda.h"

/* Forks, one child after the other; each tries the GPU and ends, every other one through its exit handlers. */
static int many(int count) {
    int well = 0, refused = 0;
    must_allocate(64 << 20);
    for (int at = 0; at < count; at++) {
        pid_t child = fork();
        if (!child) {
            int code = launch(); /* CUDA does not work here */
            if (at % 2) _exit(code ? 7 : 8);
            exit(code ? 7 : 8);
        }
        int status;
        waitpid(child, &status, 0);
        well += WIFEXITED(status);
        refused += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    }
    printf("ended %d refused %d parent %d\n", well, refused, launch());
    fflush(stdout);
    getchar(); /* to be looked at */
    return 0;
}

/* Leaves a child behind that never touches the GPU and lives until stdin ends. */
static int outlived(void) {
    must_allocate(64 << 20);
    pid_t parent = getpid(), child = fork();
    if (!child) {
        printf("parent %d\n", parent);
        fflush(stdout);
        getchar();
        _exit(0);
    }
    _exit(0);
}

static atomic_int stop;

/* Launches, allocates, captures and looks up, so that forks happen inside of every kind of hook. */
static void *busy(void *unused) {
    void *stream, *graph;
    use_context();
    MUST(cuStreamCreate, &stream, 0);
    while (!stop) {
        int code;
        launch_in(stream);
        unsigned long long pointer = allocate(1 << 20, &code);
        if (!code) CALL(cuMemFree_v2, pointer);
        if (!CALL(cuStreamBeginCapture_v2, stream, 2)) {
            launch_in(stream);
            if (!CALL(cuStreamEndCapture, stream, &graph) && graph) CALL(cuGraphDestroy, graph);
        }
        dlsym(driver, "cuLaunchKernelEx");
    }
    return unused;
}

static int storm(int count) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int hung = 0;
    for (int at = 0; at < THREADS; at++) pthread_create(&threads[at], NULL, busy, NULL);
    for (int at = 0; at < count; at++) {
        pid_t child = fork();
        if (!child) {
            void *stream = NULL, *graph;
            alarm(30); /* ends a child that hangs */
            launch();
            dlsym(driver, "cuMemAlloc_v2");
            if (at % 8 == 0) CALL(cuInit, 0);
            CALL(cuStreamBeginCapture_v2, stream, 2);
            CALL(cuStreamEndCapture, stream, &graph);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        hung += !WIFEXITED(status);
    }
    stop = 1;
    for (int at = 0; at < THREADS; at++) pthread_join(threads[at], NULL);
    printf("hung %d parent %d\n", hung, launch());
    return 0;
}

int main(int argc, char **argv) {
    start();
    if (!strcmp(argv[1], "many")) return many(count_of(argv));
    if (!strcmp(argv[1], "outlived")) return outlived();
    return argc > 1 ? storm(count_of(argv)) : 1;
}
