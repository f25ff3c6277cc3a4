/* A program that is linked to the driver (DT_NEEDED): prints where the loader bound its two symbols.
 * One line each: name, then the file of the address. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int cuLaunchKernel(void);
int cuMemAlloc_v2(void);

static void print(const char *name, void *address) {
    Dl_info info;
    printf("%s %s\n", name, dladdr(address, &info) ? info.dli_fname : "-");
}

int main(void) {
    print("cuLaunchKernel", (void *)cuLaunchKernel);
    print("cuMemAlloc_v2", (void *)cuMemAlloc_v2);
    return 0;
}
