/* What a program may tell Weir: one call, for those who want to. Without Weir it does nothing and says so.
 *
 *     weir run --request 30% --memory 8GiB --class latency --slo 'p95 < 200ms' --latency-from hint request -- ./server
 *
 *     weir_latency("request", nanoseconds);      in ./server, for each request that was served
 *
 * Older glibc than 2.34 wants -ldl. */
#ifndef WEIR_H
#define WEIR_H

#include <dlfcn.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_TAKEN 0    /* it counts */
#define WEIR_NOT_ASKED 1 /* the tenant promises nothing by this name */
#define WEIR_ABSENT 2   /* no Weir here, or the process is nobody's tenant */
#define WEIR_WRONG 3    /* there is no name */

/* Tells that a request took so long; any thread may, and as often as it likes: a comparison of names and one atomic
 * addition. `metric` is the name behind `--latency-from hint`. */
static inline int weir_latency(const char *metric, uint64_t nanoseconds) {
    static int (*known)(const char *, uint64_t);
    int (*tell)(const char *, uint64_t) = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
    if (!tell) {
        /* Preloaded it is in everybody's scope; in the driver's place it has the driver's name. */
        void *all = dlopen(0, RTLD_LAZY), *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        void *found = all ? dlsym(all, "weir_latency") : 0;
        if (!found && driver) found = dlsym(driver, "weir_latency");
        *(void **)&tell = found;
        if (all) dlclose(all);
        if (driver) dlclose(driver);
        if (!tell) return WEIR_ABSENT;
        __atomic_store_n(&known, tell, __ATOMIC_RELEASE);
    }
    return tell(metric, nanoseconds);
}

#ifdef __cplusplus
}
#endif
#endif
