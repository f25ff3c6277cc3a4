/* A preloaded allocator or profiler: each allocation looks the next one's function up, as the first of many such
 * libraries does, and looks at the driver too. What is asked for meanwhile (dlsym allocates) comes from a small heap. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static __thread volatile int inside; /* dlsym is declared to call nothing of ours back; it does */
static char early[1 << 20] __attribute__((aligned(16)));
static size_t used;

static int is_early(const void *pointer) {
    return (const char *)pointer >= early && (const char *)pointer < early + sizeof early;
}

static void *from_early(size_t bytes) {
    size_t at = __atomic_fetch_add(&used, (bytes + 15) & ~(size_t)15, __ATOMIC_RELAXED);
    return at + bytes <= sizeof early ? early + at : NULL;
}

static void *next(const char *name) {
    inside = 1;
    void *found = dlsym(RTLD_NEXT, name);
    dlsym(RTLD_DEFAULT, "cuInit");
    inside = 0;
    return found;
}

void *malloc(size_t bytes) {
    return inside ? from_early(bytes) : ((void *(*)(size_t))next("malloc"))(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return inside ? from_early(count * bytes) : ((void *(*)(size_t, size_t))next("calloc"))(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    if (!is_early(old) && !inside) return ((void *(*)(void *, size_t))next("realloc"))(old, bytes);
    void *fresh = malloc(bytes);
    size_t had = is_early(old) ? early + sizeof early - (char *)old : 0;
    return fresh && had ? memcpy(fresh, old, had < bytes ? had : bytes) : fresh;
}

void free(void *pointer) {
    if (!pointer || is_early(pointer) || inside) return;
    ((void (*)(void *))next("free"))(pointer);
}
