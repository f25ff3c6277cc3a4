/* Short threads that launch: the process must not grow with them. */
#include "cuda.h"

static pthread_key_t key;

/* A thread's last words: by now values with a destructor are gone. */
static void at_thread_end(void *code) { *(int *)code |= launch(); }

static void *once(void *code) {
    *(int *)code = use_context();
    *(int *)code |= launch();
    pthread_setspecific(key, code);
    return NULL;
}

static long resident_kib(void) {
    long kib = -1;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmRSS: %ld", &kib);
    if (file) fclose(file);
    return kib;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 10000, failed = 0;
    enum { AT_ONCE = 8 };
    long early = 0;
    start();
    pthread_key_create(&key, at_thread_end);
    for (int at = 0; at < count; at += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        int codes[AT_ONCE] = {0};
        for (int one = 0; one < AT_ONCE; one++) pthread_create(&threads[one], NULL, once, &codes[one]);
        for (int one = 0; one < AT_ONCE; one++) {
            pthread_join(threads[one], NULL);
            failed += codes[one] != 0;
        }
        if (at >= count / 10 && !early) {
            MUST(cuCtxSynchronize);
            early = resident_kib();
        }
    }
    MUST(cuCtxSynchronize);
    printf("failed %d grown_kib %ld\n", failed, resident_kib() - early);
    return 0;
}
