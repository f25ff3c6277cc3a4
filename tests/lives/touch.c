/* Calls every function that is named, with nothing in its arguments, and prints what it answered; with TOUCH_HOLDS in the
 * environment it has a context and holds memory before. */
#include "cuda.h"

static int nvml(const char *name) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device = NULL;
    static unsigned long long answer[1024], entries[1024];
    unsigned count = 16; /* of whatever the answer is a list of */
    ((int (*)())dlsym(library, "nvmlInit_v2"))();
    ((int (*)())dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    int (*call)() = (int (*)())dlsym(library, name);
    if (strstr(name, "RunningProcesses") || strstr(name, "AccountingPids")) return call(device, &count, answer);
    if (strstr(name, "ProcessUtilization")) return call(device, answer, &count, 0ULL);
    if (strstr(name, "AccountingStats")) return call(device, getpid(), answer);
    if (strstr(name, "GetSamples")) return call(device, 1, 0ULL, &count, &count, answer);
    if (strstr(name, "ProcessesUtilizationInfo") || strstr(name, "DetailList")) {
        answer[0] = 0x01000018, answer[1] = count; /* version 1 of a list in a structure, empty */
        answer[2] = (unsigned long long)entries;
        return call(device, answer);
    }
    *(unsigned *)answer = 0x02000028; /* nvmlMemory_v2 */
    return call(device, answer);
}

static int touch(const char *name) {
    static char zeroes[4096];
    void *found;
    if (!strncmp(name, "nvml", 4)) return nvml(name);
    long (*call)() = (long (*)())look_up(name);
    if (!strncmp(name, "cuGetProcAddress", 16)) return call("cuMemAlloc", &found, 12000, 0, NULL);
    if (!strncmp(name, "cuLaunchKernelEx", 16)) return call(zeroes, NULL, NULL, NULL);
    return call(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* whoever looks on sees how far it came */
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    touch("cuInit");
    if (getenv("TOUCH_HOLDS")) {
        MUST(cuDevicePrimaryCtxRetain, &context, 0);
        must("cuCtxSetCurrent", use_context());
        must_allocate(64 << 20);
    }
    for (int at = 1; at < argc; at++) printf("%s %d\n", argv[at], touch(argv[at]));
    puts("done");
    fflush(stdout);
    getchar(); /* to be looked at */
    return 0;
}
