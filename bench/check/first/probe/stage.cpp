#include "stage.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "report.h"

Stage *stage;

void open_stage() {
    void *memory = mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        _exit(1);
    }
    stage = (Stage *)memory;
}

unsigned long long host_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000ull + t.tv_nsec;
}

void spin_us(double us) {
    unsigned long long end = host_ns() + (unsigned long long)(us * 1e3);
    while (host_ns() < end) {
    }
}

void await_word(int word, unsigned value) {
    while ((int)(stage->words[word] - value) < 0 && !stage->stop) {
    }
}

void meet(int point, unsigned roles, bool spin) {
    stage->arrived[point]++;
    while (stage->arrived[point] < roles && !stage->stop)
        if (!spin) usleep(20);
}

static void clear_stage() {
    for (auto &point : stage->arrived) point = 0;
    stage->stop = stage->over = stage->pacing = 0;
    memset((void *)stage->words, 0, sizeof stage->words);
    memset(stage->count, 0, sizeof stage->count);
}

// Takes note of whoever has ended; whether all of them ended well so far.
static bool reap(std::vector<pid_t> &running, bool wait) {
    bool sound = true;
    for (auto it = running.begin(); it != running.end();) {
        int status = 0;
        if (waitpid(*it, &status, wait ? 0 : WNOHANG) == *it) {
            sound = sound && status == 0;
            it = running.erase(it);
        } else {
            it++;
        }
    }
    return sound;
}

bool play(const std::vector<Role> &roles, int limit_s) {
    clear_stage();
    fflush(stdout);
    std::vector<pid_t> running;
    for (auto &role : roles) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            role();
            fflush(stdout);
            _exit(0);
        }
        running.push_back(child);
    }
    unsigned long long end = host_ns() + limit_s * 1'000'000'000ull;
    bool sound = true;
    while (sound && !running.empty()) {
        sound = reap(running, false) && host_ns() < end;
        usleep(1000);
    }
    if (!sound) {
        stage->stop = 1;
        for (pid_t child : running) kill(child, SIGKILL);
        reap(running, true);
        say("{\"trouble\":\"a role failed or ran out of time\"}");
    }
    return sound;
}
