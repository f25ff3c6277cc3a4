// The stage: several processes, each with a context of its own, that share a page of words and what they have measured.
#pragma once
#include <atomic>
#include <functional>
#include <vector>

constexpr int MOST_ROLES = 8;       // processes at once
constexpr int MOST_SPANS = 200'000; // kernels or gaps that one of them writes down

// A stretch of the GPU's time, in nanoseconds of its own clock.
struct Span {
    unsigned long long from, to;
    double us() const { return (to - from) / 1e3; }
};

// What all processes of a scene see. The words are one page, which the driver can register.
struct Stage {
    std::atomic<unsigned> arrived[8], stop, over;
    std::atomic<unsigned> pacing; // who measures the pace of its kernels, which must be alone
    alignas(4096) volatile unsigned words[1024];
    unsigned count[MOST_ROLES];
    Span spans[MOST_ROLES][MOST_SPANS];
    Span whole[MOST_ROLES];
};
extern Stage *stage;

// Maps the stage; before anything else.
void open_stage();

using Role = std::function<void()>;
// Forks a process for each role and waits for all of them; false if one failed or they took longer than `limit_s`.
bool play(const std::vector<Role> &roles, int limit_s);
// Waits for all `roles` to come to this point; `spin` starts them within a microsecond of each other.
void meet(int point, unsigned roles, bool spin = false);

// The host's clock, in nanoseconds.
unsigned long long host_ns();
void spin_us(double us);
// Spins until a word has reached a value.
void await_word(int word, unsigned value);
