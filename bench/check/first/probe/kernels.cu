// The probe's kernels. All times are %globaltimer, in nanoseconds of the GPU's own clock.

__device__ __forceinline__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

__device__ __forceinline__ bool is_chief() { return blockIdx.x == 0 && threadIdx.x == 0; }

struct Span {
    unsigned long long from, to;
};

// Runs for `ns` of wall time. The chief writes down every stretch longer than `least` in which it did not run.
extern "C" __global__ void observe(unsigned long long ns, unsigned long long least, Span *gaps, unsigned *count, unsigned most,
                                   float *sink, Span *whole) {
    unsigned long long start = now(), last = start, t = start;
    if (is_chief()) whole->from = start;
    float x = threadIdx.x;
    while (t < start + ns) {
        if (!is_chief())
            for (int i = 0; i < 64; i++) x = fmaf(x, 1.0001f, 0.5f);
        t = now();
        if (is_chief()) {
            if (t - last > least && *count < most) {
                gaps[*count] = {last, t};
                *count = *count + 1;
            }
            last = t;
        }
    }
    if (is_chief()) whole->to = now();
    if (x == -1.0f) *sink = x; // never; else the compiler would drop the work
}

// `rounds` multiply-adds in each thread; the chief writes down when it began and ended.
extern "C" __global__ void work(unsigned rounds, Span *span, float *sink) {
    if (is_chief() && span) span->from = now();
    float x = threadIdx.x;
    for (unsigned i = 0; i < rounds; i++) x = fmaf(x, 1.0001f, 0.5f);
    if (x == -1.0f) *sink = x;
    if (is_chief() && span) span->to = now();
}

// Answers `count` pings of the host with the GPU's time.
extern "C" __global__ void pong(volatile unsigned *ping, volatile unsigned long long *answer, unsigned count) {
    for (unsigned i = 1; i <= count; i++) {
        while (*ping != i) {
        }
        answer[0] = now();
        __threadfence_system();
    }
}

// Next to nothing.
extern "C" __global__ void tiny(float *x) {
    if (threadIdx.x == 1000) *x += 1.0f;
}

// Spins until the host says so: what is launched behind it begins all at once.
extern "C" __global__ void hold(volatile unsigned *word, unsigned value) {
    while (*word < value) {
    }
}
