/* An allocator inside of the program, as a statically linked jemalloc is: it looks functions up while it starts, under
 * its own lock, at the first allocation of the process (which may be anybody's). */
#include "plain.c"
#include <stdint.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char heap[256 << 20] __attribute__((aligned(16)));
static size_t used;
static void *next_create;

void *malloc(size_t bytes) {
    pthread_mutex_lock(&lock); /* a second entry by the same thread hangs here */
    if (!next_create) {
        next_create = (void *)1;
        next_create = dlsym(RTLD_NEXT, "pthread_create");
    }
    size_t need = ((bytes + 15) & ~(size_t)15) + 16, at = used;
    used += need;
    pthread_mutex_unlock(&lock);
    if (at + need > sizeof heap) return NULL;
    *(size_t *)(heap + at) = bytes;
    return heap + at + 16;
}
void free(void *pointer) { (void)pointer; }
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); } /* the heap is zeroes, used once */
void *realloc(void *old, size_t bytes) {
    void *fresh = malloc(bytes);
    size_t had = old ? *(size_t *)((char *)old - 16) : 0;
    return old && fresh ? memcpy(fresh, old, had < bytes ? had : bytes) : fresh;
}
int posix_memalign(void **out, size_t to, size_t bytes) {
    uintptr_t raw = (uintptr_t)malloc(bytes + to);
    uintptr_t aligned = (raw + to - 1) & ~(uintptr_t)(to - 1);
    if (aligned != raw) *(size_t *)(aligned - 16) = bytes;
    *out = (void *)aligned;
    return raw ? 0 : ENOMEM;
}
void *aligned_alloc(size_t to, size_t bytes) {
    void *out;
    return posix_memalign(&out, to, bytes) ? NULL : out;
}
void *memalign(size_t to, size_t bytes) { return aligned_alloc(to, bytes); }
