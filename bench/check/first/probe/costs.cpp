// What calls cost the host, and what marks cost the GPU; how soon the end of work is known; how many launches a stream takes.
#include "gpu.h"

#include <thread>
#include <unistd.h>

#include "report.h"
#include "scenes.h"

namespace {
constexpr int EVENTS = 2048;
constexpr int HOLD = 512, MARK = 1000, END = 8; // words
constexpr int BATCH = 16;                       // calls between two looks at the clock
constexpr int GPU_KERNELS = 400, GPU_ROUNDS = 7;
constexpr int LATE_ROUNDS = 60;
constexpr double LATE_KERNEL_US = 40;
constexpr int MOST_LAUNCHES = 8000;
constexpr unsigned long long BLOCKED_NS = 200'000'000; // a call that takes so long is blocked
constexpr int LIMIT_S = 40;

CUevent untimed[EVENTS], timed[EVENTS];

using Call = std::function<void(int)>;

// A call's time on the host, into a queue that never fills.
void host_call(const char *name, int count, const Call &call) {
    std::vector<double> times;
    for (int done = 0; done < count; done += BATCH) {
        unsigned long long from = host_ns();
        for (int i = 0; i < BATCH; i++) call((done + i) % EVENTS);
        times.push_back((host_ns() - from) / 1e3 / BATCH);
        gpu.finish();
    }
    say("{\"host_call\":\"%s\",\"us\":%s}", name, spread(times).c_str());
}

// What each kernel of a row takes on the GPU, with a mark behind every `every`-th; all are launched before the first begins.
void gpu_mark(const char *name, double kernel_us, int every, const Call &mark) {
    std::vector<double> times;
    for (int round = 0; round < GPU_ROUNDS; round++) {
        stage->words[HOLD] = 0;
        gpu.hold(gpu.stream, HOLD);
        CHECK(driver.cuEventRecord(timed[EVENTS - 2], gpu.stream));
        for (int i = 0; i < GPU_KERNELS; i++) {
            if (kernel_us > 0)
                gpu.work(gpu.stream, kernel_us);
            else
                gpu.tiny(gpu.stream);
            if (every && i % every == every - 1) mark(i);
        }
        CHECK(driver.cuEventRecord(timed[EVENTS - 1], gpu.stream));
        stage->words[HOLD] = 1;
        CHECK(driver.cuEventSynchronize(timed[EVENTS - 1]));
        float ms;
        CHECK(driver.cuEventElapsedTime(&ms, timed[EVENTS - 2], timed[EVENTS - 1]));
        times.push_back(ms * 1e3 / GPU_KERNELS);
    }
    say("{\"gpu_each_us\":\"%s\",\"kernel_us\":%.0f,\"every\":%d,\"us\":%s}", name, kernel_us, every, spread(times).c_str());
}

void host_calls() {
    host_call("launch of a tiny kernel", 3200, [](int) { gpu.tiny(gpu.stream); });
    host_call("event record, untimed", 1600, [](int i) { driver.cuEventRecord(untimed[i], gpu.stream); });
    host_call("event record, timed", 1600, [](int i) { driver.cuEventRecord(timed[i], gpu.stream); });
    host_call("write value 32, default", 1600, [](int i) { gpu.write_word(gpu.stream, MARK, i); });
    host_call("event query, done", 1600, [](int i) { driver.cuEventQuery(untimed[i]); });
    host_call("stream query, idle", 1600, [](int) { driver.cuStreamQuery(gpu.stream); });
    host_call("stream synchronize, idle", 1600, [](int) { driver.cuStreamSynchronize(gpu.stream); });
    host_call("mem get info", 320, [](int) {
        size_t free, total;
        driver.cuMemGetInfo(&free, &total);
    });
    host_call("is capturing", 1600, [](int) {
        CUstreamCaptureStatus status;
        driver.cuStreamIsCapturing(gpu.stream, &status);
    });
}

void gpu_marks() {
    Call event = [](int i) { driver.cuEventRecord(untimed[i], gpu.stream); };
    Call timed_event = [](int i) { driver.cuEventRecord(timed[i], gpu.stream); };
    Call word = [](int i) { gpu.write_word(gpu.stream, MARK, i); };
    for (double us : {0.0, 10.0}) {
        gpu_mark("no mark", us, 0, event);
        gpu_mark("untimed event", us, 1, event);
        for (int every : {1, 8}) gpu_mark("timed event", us, every, timed_event);
        for (int every : {1, 8}) gpu_mark("word, default", us, every, word);
    }
}

// How late the end of a kernel is known, by three ways; and how soon it begins after its launch.
void known_after() {
    long long offset = gpu.clock_offset_ns();
    std::vector<double> late[3], start;
    for (int way = 0; way < 3; way++)
        for (int i = 0; i < LATE_ROUNDS; i++) {
            stage->words[END] = 0;
            unsigned long long launched = host_ns();
            gpu.work(gpu.stream, LATE_KERNEL_US, 0);
            if (way == 0) {
                gpu.write_word(gpu.stream, END, 1);
                await_word(END, 1);
            } else if (way == 1) {
                CHECK(driver.cuEventRecord(untimed[0], gpu.stream));
                while (driver.cuEventQuery(untimed[0]) == CUDA_ERROR_NOT_READY) {
                }
            } else {
                gpu.finish();
            }
            long long known = host_ns() + offset;
            gpu.finish();
            Span span = gpu.spans(1)[0];
            late[way].push_back((known - (long long)span.to) / 1e3);
            start.push_back(((long long)span.from - offset - (long long)launched) / 1e3);
        }
    say("{\"known_after_us\":{\"word\":%s,\"event_query\":%s,\"synchronize\":%s},\"launch_to_start_us\":%s}", spread(late[0]).c_str(),
        spread(late[1]).c_str(), spread(late[2]).c_str(), spread(start).c_str());
}

// How many launches fit before the call blocks; a second thread lets the row go once a call has been in the driver for long.
void queue_depth() {
    stage->words[HOLD] = 0;
    gpu.hold(gpu.stream, HOLD);
    std::atomic<unsigned long long> beat{host_ns()};
    std::thread releaser([&] {
        while (host_ns() < beat + BLOCKED_NS) usleep(1000);
        stage->words[HOLD] = 1;
    });
    int launches = 0;
    for (; launches < MOST_LAUNCHES; launches++) {
        unsigned long long from = host_ns();
        gpu.tiny(gpu.stream);
        if (host_ns() - from > BLOCKED_NS / 2) break;
        beat = host_ns();
    }
    releaser.join();
    gpu.finish();
    say("{\"queue_depth_launches\":%d}", launches);
}
} // namespace

void costs() {
    play({[] {
             gpu.open();
             for (int i = 0; i < EVENTS; i++) {
                 CHECK(driver.cuEventCreate(&untimed[i], CU_EVENT_DISABLE_TIMING));
                 CHECK(driver.cuEventCreate(&timed[i], CU_EVENT_DEFAULT));
             }
             host_calls();
             gpu_marks();
             known_after();
             queue_depth();
         }},
         LIMIT_S);
}
