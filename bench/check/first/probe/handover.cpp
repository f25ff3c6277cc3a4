// From the end of one context's last kernel to the start of the next context's first: the host of the next spins and launches, or its
// stream waits for a word which a GPU or a host writes.
#include "gpu.h"

#include <unistd.h>

#include "report.h"
#include "scenes.h"

namespace {
constexpr unsigned ROUNDS = 150, WARM_UP = 5;
constexpr double GIVER_US = 200, TAKER_US = 50; // their kernels
constexpr double PREPARED_US = 200;             // so long the taker's stream has waited when the giver begins
constexpr int LIMIT_S = 15;
// The words: the round that the giver has ended; the taker is prepared for; the taker has ended; the GPU tells the giver's host.
enum { ENDED = 0, PREPARED = 1, TAKEN = 2, TOLD = 64 };
enum Way { HOST_LAUNCHES, GPU_WRITES, HOST_WRITES };
const char *const NAMES[] = {"host of the next spins on the word, then launches",
                             "stream of the next waits for the word that the GPU writes",
                             "stream of the next waits for the word that a host writes"};

void giver(Way way) {
    gpu.open();
    meet(0, 2);
    for (unsigned i = 0; i < ROUNDS && !stage->stop; i++) {
        await_word(PREPARED, i);
        spin_us(PREPARED_US);
        gpu.work(gpu.stream, GIVER_US, i);
        gpu.write_word(gpu.stream, way == HOST_WRITES ? TOLD : ENDED, i + 1);
        if (way == HOST_WRITES) {
            await_word(TOLD, i + 1);
            stage->words[ENDED] = i + 1;
        }
        gpu.finish();
        await_word(TAKEN, i + 1);
    }
    gpu.show_spans(0, ROUNDS);
    meet(1, 2);
}

void taker(Way way) {
    gpu.open();
    meet(0, 2);
    for (unsigned i = 0; i < ROUNDS && !stage->stop; i++) {
        if (way != HOST_LAUNCHES) {
            gpu.wait_word(gpu.stream, ENDED, i + 1);
            gpu.work(gpu.stream, TAKER_US, i);
            stage->words[PREPARED] = i;
        } else {
            stage->words[PREPARED] = i;
            await_word(ENDED, i + 1);
            gpu.work(gpu.stream, TAKER_US, i);
        }
        gpu.finish();
        stage->words[TAKEN] = i + 1;
    }
    gpu.show_spans(1, ROUNDS);
    meet(1, 2);
}

// A context whose kernels follow each other, beside nobody, an idle context, or one whose stream waits for a word.
void beside(int other, const char *name) {
    constexpr unsigned KERNELS = 2000;
    constexpr double KERNEL_US = 100;
    unsigned roles = other ? 2 : 1;
    auto worker = [=] {
        gpu.open();
        meet(0, roles);
        for (unsigned i = 0; i < KERNELS; i++) gpu.work(gpu.stream, KERNEL_US, i);
        gpu.finish();
        gpu.show_spans(0, KERNELS);
        stage->over = 1;
        stage->words[ENDED] = 1;
    };
    auto neighbour = [=] {
        gpu.open();
        if (other == 2) {
            gpu.wait_word(gpu.stream, ENDED, 1);
            gpu.work(gpu.stream, TAKER_US);
        }
        meet(0, roles);
        while (!stage->over && !stage->stop) usleep(100);
        gpu.finish();
    };
    if (!play(other ? std::vector<Role>{worker, neighbour} : std::vector<Role>{worker}, LIMIT_S)) return;
    const Span *spans = stage->spans[0];
    std::vector<double> each, between;
    for (unsigned i = 1; i < KERNELS; i++) {
        each.push_back(spans[i].us());
        between.push_back((double)(long long)(spans[i].from - spans[i - 1].to) / 1e3);
    }
    double total = (spans[KERNELS - 1].to - spans[0].from) / 1e3;
    say("{\"beside\":\"%s\",\"kernels_2000_us\":%.0f,\"each_us\":%s,\"between_us\":%s}", name, total, spread(each).c_str(), spread(between).c_str());
}
} // namespace

void handover() {
    for (Way way : {HOST_LAUNCHES, GPU_WRITES, HOST_WRITES}) {
        if (!play({[=] { giver(way); }, [=] { taker(way); }}, LIMIT_S)) continue;
        std::vector<double> times;
        for (unsigned i = WARM_UP; i < ROUNDS; i++)
            times.push_back((double)(long long)(stage->spans[1][i].from - stage->spans[0][i].to) / 1e3);
        say("{\"handover\":\"%s\",\"us\":%s}", NAMES[way], spread(times).c_str());
    }
    beside(0, "alone");
    beside(1, "beside an idle context");
    beside(2, "beside one whose stream waits for a word");
}
