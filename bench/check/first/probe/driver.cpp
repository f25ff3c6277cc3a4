#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "report.h"

Driver driver;

void Driver::load() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        fprintf(stderr, "no driver: %s\n", dlerror());
        _exit(2);
    }
#define DRIVER_LOOK_UP(name, symbol) name = (decltype(name))dlsym(library, symbol);
    DRIVER_CALLS(DRIVER_LOOK_UP)
#undef DRIVER_LOOK_UP
}

void check(CUresult result, const char *call, int line) {
    if (result == CUDA_SUCCESS) return;
    say("{\"error\":\"%s\",\"line\":%d,\"code\":%d}", call, line, (int)result);
    _exit(3);
}
