// Waits in a stream: what an open one costs, how soon a closed one stops work, and whom a blocked one holds up.
#include "gpu.h"

#include <algorithm>
#include <thread>
#include <unistd.h>

#include "report.h"
#include "scenes.h"

namespace {
constexpr int GATE = 16, GIVEN = 20, DONE = 24, HOLD = 512; // words
constexpr int LIMIT_S = 40;

// ---- an open wait before kernels
enum Kind { NO_WAIT, HOST_AT_LEAST, HOST_BIT, DEVICE_BIT };
const char *const KIND_NAMES[] = {"no wait", "host word, at least", "host word, bit", "device word, bit"};
constexpr int OPEN_KERNELS = 300, OPEN_ROUNDS = 5;

void one_wait(Kind kind, CUdeviceptr device_word) {
    unsigned how = kind == HOST_AT_LEAST ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WAIT_VALUE_AND;
    CHECK(driver.cuStreamWaitValue32(gpu.stream, kind == DEVICE_BIT ? device_word : gpu.word(GATE), 1, how));
}

void open_wait(Kind kind, int every, double kernel_us, CUdeviceptr device_word, CUevent first, CUevent last) {
    std::vector<double> each, calls;
    for (int round = 0; round < OPEN_ROUNDS; round++) {
        stage->words[HOLD] = 0;
        gpu.hold(gpu.stream, HOLD);
        CHECK(driver.cuEventRecord(first, gpu.stream));
        double in_calls = 0;
        int waits = 0;
        for (int i = 0; i < OPEN_KERNELS; i++) {
            if (kind != NO_WAIT && i % every == 0) {
                unsigned long long from = host_ns();
                one_wait(kind, device_word);
                in_calls += (host_ns() - from) / 1e3;
                waits++;
            }
            if (kernel_us > 0)
                gpu.work(gpu.stream, kernel_us);
            else
                gpu.tiny(gpu.stream);
        }
        CHECK(driver.cuEventRecord(last, gpu.stream));
        stage->words[HOLD] = 1;
        CHECK(driver.cuEventSynchronize(last));
        float ms;
        CHECK(driver.cuEventElapsedTime(&ms, first, last));
        each.push_back(ms * 1e3 / OPEN_KERNELS);
        if (waits) calls.push_back(in_calls / waits);
    }
    say("{\"open_wait\":\"%s\",\"every\":%d,\"kernel_us\":%.0f,\"each_us\":%s,\"call_us\":%s}", KIND_NAMES[kind], every, kernel_us,
        spread(each).c_str(), spread(calls).c_str());
}

void open_waits() {
    CUdeviceptr device_word;
    CUevent first, last;
    CHECK(driver.cuMemAlloc(&device_word, 4096));
    CHECK(driver.cuMemsetD8Async(device_word, 0xff, 4096, gpu.stream));
    gpu.finish();
    CHECK(driver.cuEventCreate(&first, CU_EVENT_DEFAULT));
    CHECK(driver.cuEventCreate(&last, CU_EVENT_DEFAULT));
    stage->words[GATE] = 1;
    for (double kernel_us : {0.0, 10.0, 100.0})
        for (Kind kind : {NO_WAIT, HOST_AT_LEAST, HOST_BIT, DEVICE_BIT})
            for (int every : {1, 8})
                if (kind != NO_WAIT || every == 1) open_wait(kind, every, kernel_us, device_word, first, last);
}

// ---- a wait before each kernel that the host closes in their midst
constexpr int CLOSED_ROUNDS = 25;
constexpr double CLOSED_AFTER_US = 1500, CLOSED_STEP_US = 37; // each round a little later, within another kernel
constexpr double CLOSED_FOR_US = 3000;                        // and three kernels

void closed_wait(double kernel_us) {
    int kernels = kernel_us < 50 ? 400 : 60;
    long long offset = gpu.clock_offset_ns();
    std::vector<double> more, quiet;
    for (int round = 0; round < CLOSED_ROUNDS; round++) {
        stage->words[GATE] = 1;
        gpu.forget(kernels);
        for (int i = 0; i < kernels; i++) {
            gpu.wait_word(gpu.stream, GATE, 1, CU_STREAM_WAIT_VALUE_AND);
            gpu.work(gpu.stream, kernel_us, i);
        }
        spin_us(CLOSED_AFTER_US + round * CLOSED_STEP_US);
        stage->words[GATE] = 0;
        unsigned long long closed = host_ns() + offset;
        spin_us(CLOSED_FOR_US + 3 * kernel_us);
        unsigned long long opened = host_ns() + offset;
        stage->words[GATE] = 1;
        gpu.finish();
        int begun = 0;
        unsigned long long end = 0;
        for (Span span : gpu.spans(kernels)) {
            if (span.from >= opened) continue;
            begun += span.from > closed;
            end = std::max(end, span.to);
        }
        more.push_back(begun);
        quiet.push_back((double)(long long)(end - closed) / 1e3);
    }
    say("{\"closed\":true,\"kernel_us\":%.0f,\"kernels_that_began_after\":%s,\"quiet_after_us\":%s}", kernel_us, spread(more).c_str(),
        spread(quiet).c_str());
}

// ---- special streams, and streams beside a blocked one
void special_streams() {
    const struct {
        CUstream stream;
        const char *name;
    } special[] = {{CU_STREAM_LEGACY, "the legacy stream"}, {CU_STREAM_PER_THREAD, "the thread's own stream"}};
    stage->words[GATE] = 1;
    for (auto &[stream, name] : special) {
        CUresult code = driver.cuStreamWaitValue32(stream, gpu.word(GATE), 1, CU_STREAM_WAIT_VALUE_GEQ);
        say("{\"wait_in\":\"%s\",\"code\":%d,\"then\":%d}", name, (int)code, (int)driver.cuStreamSynchronize(stream));
    }
}

void beside_blocked_stream() {
    constexpr int STREAMS = 40;
    constexpr double KERNEL_US = 5, BLOCKED_US = 20'000, CLOSE_US = 1000;
    long long offset = gpu.clock_offset_ns();
    CUstream streams[STREAMS];
    for (auto &stream : streams) {
        CHECK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        gpu.work(stream, KERNEL_US);
    }
    CHECK(driver.cuCtxSynchronize());
    gpu.forget(STREAMS);
    stage->words[GATE] = 0;
    gpu.wait_word(streams[0], GATE, 1);
    for (int i = 1; i < STREAMS; i++) gpu.work(streams[i], KERNEL_US, i);
    spin_us(BLOCKED_US);
    unsigned long long opened = host_ns() + offset;
    stage->words[GATE] = 1;
    CHECK(driver.cuCtxSynchronize());
    auto spans = gpu.spans(STREAMS);
    int held = 0;
    std::string which;
    for (int i = 1; i < STREAMS; i++)
        if (spans[i].from > opened - (unsigned long long)(CLOSE_US * 1e3)) {
            held++;
            which += std::to_string(i) + " ";
        }
    say("{\"streams_held_up_by_a_blocked_one\":%d,\"of\":%d,\"which\":\"%s\"}", held, STREAMS - 1, which.c_str());
}

// ---- pieces: five kernels behind a wait, which a second thread lets go
constexpr int PIECES = 300, PER_PIECE = 5;
constexpr double PIECE_KERNEL_US = 100;
const char *const PIECE_NAMES[] = {"no pieces", "next piece let go when four of five are done", "two pieces ahead"};

void launch_pieces(bool waits) {
    for (int piece = 0; piece < PIECES; piece++) {
        if (waits) gpu.wait_word(gpu.stream, GIVEN, piece + 1);
        for (int j = 0; j < PER_PIECE; j++) {
            gpu.work(gpu.stream, PIECE_KERNEL_US, piece * PER_PIECE + j);
            if (waits && j == PER_PIECE - 2) gpu.write_word(gpu.stream, DONE, piece + 1);
        }
    }
}

void pieces(int ahead) {
    for (int round = 0; round < 2; round++) { // the first warms up
        stage->words[DONE] = 0;
        stage->words[GIVEN] = ahead;
        std::atomic<bool> over{false};
        std::thread giver([&] {
            while (ahead && !over) stage->words[GIVEN] = stage->words[DONE] + ahead;
        });
        launch_pieces(ahead > 0);
        gpu.finish();
        over = true;
        giver.join();
    }
    auto spans = gpu.spans(PIECES * PER_PIECE);
    std::vector<double> between;
    for (size_t i = PER_PIECE; i < spans.size(); i += PER_PIECE)
        between.push_back((double)(long long)(spans[i].from - spans[i - 1].to) / 1e3);
    say("{\"pieces\":\"%s\",\"between_pieces_us\":%s,\"total_us\":%.0f}", PIECE_NAMES[ahead], spread(between).c_str(),
        (spans.back().to - spans.front().from) / 1e3);
}

// From the host's word to the start of a kernel that waits for it, with nobody else on the GPU.
void release() {
    constexpr double KERNEL_US = 20, WAITED_US = 100;
    long long offset = gpu.clock_offset_ns();
    std::vector<double> times;
    for (int i = 0; i < 100; i++) {
        stage->words[GIVEN] = 0;
        gpu.wait_word(gpu.stream, GIVEN, 1);
        gpu.work(gpu.stream, KERNEL_US, 0);
        spin_us(WAITED_US);
        unsigned long long given = host_ns();
        stage->words[GIVEN] = 1;
        gpu.finish();
        times.push_back(((long long)gpu.spans(1)[0].from - offset - (long long)given) / 1e3);
    }
    say("{\"release_on_an_idle_gpu_us\":%s}", spread(times).c_str());
}

// ---- a closed wait behind work, beside a neighbour that is never done: does the slice end with the work?
void slice_ends_at_wait() {
    constexpr int ROUNDS = 60, KERNELS = 5;
    constexpr double KERNEL_US = 100, PAUSE_US = 5000, OBSERVED_US = 700'000, LEAST_US = 8;
    auto waiter = [=] {
        gpu.open();
        meet(0, 2);
        for (int round = 0; round < ROUNDS && !stage->stop; round++) {
            for (int i = 0; i < KERNELS; i++) gpu.work(gpu.stream, KERNEL_US);
            gpu.wait_word(gpu.stream, GATE, round + 1);
            spin_us(PAUSE_US);
            stage->words[GATE] = round + 1;
        }
        gpu.finish();
    };
    auto neighbour = [=] {
        gpu.open();
        meet(0, 2);
        gpu.observe(OBSERVED_US, LEAST_US, gpu.sms, BLOCK);
        gpu.finish();
        gpu.show_gaps(1);
    };
    if (!play({waiter, neighbour}, LIMIT_S)) return;
    std::vector<double> gaps;
    for (unsigned i = 0; i < stage->count[1]; i++) gaps.push_back(stage->spans[1][i].us());
    say("{\"closed_wait_behind_500_us_of_work_beside_a_backlogged_one\":{\"neighbours_gap_us\":%s}}", spread(gaps).c_str());
}

// ---- one context at work beside others whose streams are all blocked
void beside_blocked_contexts(unsigned blocked, int streams) {
    constexpr unsigned KERNELS = 1500;
    constexpr double KERNEL_US = 100, BLOCKED_KERNEL_US = 50;
    unsigned roles = blocked + 1;
    std::vector<Role> all{[=] {
        gpu.open();
        meet(0, roles);
        for (int round = 0; round < 2; round++) { // the first warms up
            for (unsigned i = 0; i < KERNELS; i++) gpu.work(gpu.stream, KERNEL_US, i);
            gpu.finish();
        }
        gpu.show_spans(0, KERNELS);
        stage->words[GATE] = 1;
        stage->over = 1;
    }};
    for (unsigned other = 0; other < blocked; other++)
        all.push_back([=] {
            gpu.open();
            for (int i = 0; i < streams; i++) {
                CUstream stream;
                CHECK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                gpu.wait_word(stream, GATE, 1);
                gpu.work(stream, BLOCKED_KERNEL_US);
            }
            meet(0, roles);
            while (!stage->over && !stage->stop) usleep(100);
            CHECK(driver.cuCtxSynchronize());
        });
    if (!play(all, LIMIT_S)) return;
    const Span *spans = stage->spans[0];
    std::vector<double> each;
    for (unsigned i = 1; i < KERNELS; i++) each.push_back((spans[i].to - spans[i - 1].to) / 1e3);
    say("{\"blocked_contexts\":%u,\"streams_each\":%d,\"kernel_to_kernel_us\":%s,\"total_us\":%.0f}", blocked, streams, spread(each).c_str(),
        (spans[KERNELS - 1].to - spans[0].from) / 1e3);
}
} // namespace

void gates() {
    auto alone = [] {
        gpu.open();
        open_waits();
        for (double kernel_us : {20.0, 100.0, 500.0}) closed_wait(kernel_us);
        special_streams();
        beside_blocked_stream();
    };
    play({alone}, LIMIT_S);
    auto let_go = [] {
        gpu.open();
        for (int ahead : {0, 1, 2}) pieces(ahead);
        release();
    };
    play({let_go}, LIMIT_S);
    slice_ends_at_wait();
    for (unsigned blocked : {1, 3, 7})
        for (int streams : {1, 8}) beside_blocked_contexts(blocked, streams);
}
