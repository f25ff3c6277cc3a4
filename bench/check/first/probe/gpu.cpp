#include "gpu.h"

#include <algorithm>
#include <unistd.h>

Gpu gpu;

constexpr unsigned PACE_WARM_UP = 30;         // kernels until the clocks are up
constexpr unsigned PACE_ROUNDS = 2'000'000;   // of the kernel that is timed: some milliseconds
constexpr double PACE_GUESS = 400;            // rounds a microsecond, should the timer say nothing
constexpr unsigned PINGS = 300;
constexpr int PING_WORD = 1008, ANSWER_WORD = 1010; // an answer is two words
constexpr unsigned long long PING_PATIENCE_NS = 50'000'000;

void Gpu::open() {
    driver.load();
    CUdevice device;
    CHECK(driver.cuInit(0));
    CHECK(driver.cuDeviceGet(&device, 0));
    int count = 0;
    CHECK(driver.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    sms = count;
    CHECK(driver.cuDevicePrimaryCtxRetain(&context, device));
    CHECK(driver.cuCtxSetCurrent(context));
    CHECK(driver.cuModuleLoad(&module, "kernels.cubin"));
    struct {
        CUfunction *kernel;
        const char *name;
    } kernels[] = {{&observe_kernel, "observe"}, {&work_kernel, "work"}, {&pong_kernel, "pong"}, {&tiny_kernel, "tiny"}, {&hold_kernel, "hold"}};
    for (auto &[kernel, name] : kernels) CHECK(driver.cuModuleGetFunction(kernel, module, name));
    CHECK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    struct {
        CUdeviceptr *memory;
        size_t bytes;
    } memories[] = {{&sink, 4096}, {&gap_count, 4096}, {&whole, 4096}, {&gaps, sizeof(Span) * MOST_SPANS}, {&span_memory, sizeof(Span) * MOST_SPANS}};
    for (auto &[memory, bytes] : memories) {
        CHECK(driver.cuMemAlloc(memory, bytes));
        CHECK(driver.cuMemsetD8Async(*memory, 0, bytes, stream));
    }
    CHECK(driver.cuMemHostRegister((void *)stage->words, sizeof stage->words, CU_MEMHOSTREGISTER_DEVICEMAP));
    CHECK(driver.cuMemHostGetDevicePointer(&words, (void *)stage->words, 0));
    finish();
    measure_pace();
}

void Gpu::measure_pace() {
    while (stage->pacing.exchange(1) && !stage->stop) usleep(100); // one process at a time
    for (unsigned i = 0; i < PACE_WARM_UP; i++) work_rounds(stream, PACE_ROUNDS / 2, span_at(0), sms, BLOCK);
    work_rounds(stream, PACE_ROUNDS, span_at(0), sms, BLOCK);
    finish();
    stage->pacing = 0;
    double us = spans(1)[0].us();
    rounds_per_us = us > 0 ? PACE_ROUNDS / us : PACE_GUESS;
}

void Gpu::launch(CUfunction kernel, CUstream in, unsigned grid, unsigned block, void **arguments) {
    CHECK(driver.cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, in, arguments, nullptr));
}

void Gpu::work_rounds(CUstream in, unsigned rounds, CUdeviceptr span, unsigned grid, unsigned block) {
    void *arguments[] = {&rounds, &span, &sink};
    launch(work_kernel, in, grid, block, arguments);
}

void Gpu::work(CUstream in, double us, int slot, unsigned grid, unsigned block) {
    work_rounds(in, (unsigned)(us * rounds_per_us), slot < 0 ? 0 : span_at(slot), grid ? grid : sms, block);
}

void Gpu::tiny(CUstream in) {
    void *arguments[] = {&sink};
    launch(tiny_kernel, in, 1, 32, arguments);
}

void Gpu::hold(CUstream in, int index) {
    CUdeviceptr at = word(index);
    unsigned one = 1;
    void *arguments[] = {&at, &one};
    launch(hold_kernel, in, 1, 1, arguments);
}

void Gpu::observe(double us, double least_us, unsigned grid, unsigned block) {
    unsigned long long ns = us * 1e3, least = least_us * 1e3;
    unsigned most = MOST_SPANS;
    void *arguments[] = {&ns, &least, &gaps, &gap_count, &most, &sink, &whole};
    launch(observe_kernel, stream, grid, block, arguments);
}

void Gpu::wait_word(CUstream in, int index, unsigned value, unsigned how) {
    CHECK(driver.cuStreamWaitValue32(in, word(index), value, how));
}

void Gpu::write_word(CUstream in, int index, unsigned value) {
    CHECK(driver.cuStreamWriteValue32(in, word(index), value, 0));
}

std::vector<Span> Gpu::spans(unsigned count) const {
    std::vector<Span> all(count);
    if (count) CHECK(driver.cuMemcpyDtoH(all.data(), span_memory, sizeof(Span) * count));
    return all;
}

void Gpu::forget(unsigned count) {
    CHECK(driver.cuMemsetD8Async(span_memory, 0, sizeof(Span) * count, stream));
    finish();
}

void Gpu::show_spans(int role, unsigned count) const {
    auto all = spans(count);
    std::copy(all.begin(), all.end(), stage->spans[role]);
    stage->count[role] = count;
}

void Gpu::show_gaps(int role) const {
    unsigned count = 0;
    CHECK(driver.cuMemcpyDtoH(&count, gap_count, sizeof count));
    if (count) CHECK(driver.cuMemcpyDtoH(stage->spans[role], gaps, sizeof(Span) * count));
    CHECK(driver.cuMemcpyDtoH(&stage->whole[role], whole, sizeof(Span)));
    stage->count[role] = count;
}

long long Gpu::clock_offset_ns() {
    volatile unsigned long long *answer = (unsigned long long *)&stage->words[ANSWER_WORD];
    CUdeviceptr ping = word(PING_WORD), at = word(ANSWER_WORD);
    unsigned count = PINGS;
    void *arguments[] = {&ping, &at, &count};
    launch(pong_kernel, stream, 1, 1, arguments);
    long long best = 1ll << 40, offset = 0;
    for (unsigned i = 1; i <= count; i++) {
        unsigned long long old = *answer, asked = host_ns();
        stage->words[PING_WORD] = i;
        while (*answer == old && host_ns() - asked < PING_PATIENCE_NS) {
        }
        unsigned long long heard = host_ns();
        if ((long long)(heard - asked) < best) {
            best = heard - asked;
            offset = *answer - (asked + heard) / 2;
        }
        spin_us(3);
    }
    finish();
    return offset;
}
