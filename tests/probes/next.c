/* Another interposer: asks for what stands behind itself. The caller's address is what RTLD_NEXT goes by, so the
 * question must come from a library that is preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *weir_probe_next(const char *name) { return dlsym(RTLD_NEXT, name); }
