/* Calls after the end: exit handlers, destructors, libraries that were closed. */
#include "cuda.h"

static int late;

/* Everything that a library's clean-up tends to call. */
static void clean_up(const char *where) {
    size_t free, total;
    char line[96];
    int code, info, done;
    if (!late) return;
    unsigned long long pointer = allocate(1 << 20, &code);
    info = CALL(cuMemGetInfo_v2, &free, &total);
    done = launch() | CALL(cuCtxSynchronize) | CALL(cuMemFree_v2, pointer);
    int length = snprintf(line, sizeof line, "%s %d %d %d\n", where, code, info, done);
    if (write(1, line, length) != length) _exit(6);
}

static void in_exit_handler(void) { clean_up("atexit"); }

static __attribute__((destructor)) void in_destructor(void) { clean_up("destructor"); }

static int late_calls(void) {
    atexit(in_exit_handler); /* before the driver's own, so it runs after them */
    start();
    late = 1;
    return 0;
}

/* Opens and closes the driver and the library named, again and again; handles and addresses from before stay good. */
static int closes(int count, const char *library) {
    int failed = 0;
    start();
    int (*kept)() = look_up("cuLaunchKernel");
    for (int at = 0; at < count; at++) {
        void *ours = library ? dlopen(library, RTLD_NOW) : NULL;
        dlclose(driver);
        driver = dlopen("libcuda.so.1", at % 2 ? RTLD_NOW | RTLD_GLOBAL : RTLD_LAZY);
        failed += launch() != 0;
        failed += kept(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 0;
        if (ours) dlclose(ours);
    }
    printf("failed %d\n", failed);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "late")) return late_calls();
    return closes(count_of(argv), argc > 3 ? argv[3] : NULL);
}
