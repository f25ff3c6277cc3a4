/* Calls every function that is named, with nothing in its arguments, and prints what it answered. */
#include "cuda.h"

static int nvml(const char *name) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device = NULL;
    static unsigned long long answer[1024];
    unsigned count = 16; /* of whatever the answer is a list of */
    ((int (*)())dlsym(library, "nvmlInit_v2"))();
    ((int (*)())dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    int (*call)() = (int (*)())dlsym(library, name);
    if (strstr(name, "RunningProcesses")) return call(device, &count, answer);
    if (strstr(name, "ProcessUtilization")) return call(device, answer, &count, 0ULL);
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
    for (int at = 1; at < argc; at++) printf("%s %d\n", argv[at], touch(argv[at]));
    puts("done");
    fflush(stdout);
    getchar(); /* to be looked at */
    return 0;
}
