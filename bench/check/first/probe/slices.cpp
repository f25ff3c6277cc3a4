// Contexts that always have work: how long each runs until the next one's turn, what a switch takes, and what all get done together.
#include "gpu.h"

#include <algorithm>

#include "report.h"
#include "scenes.h"

namespace {
constexpr double OBSERVED_US = 400'000; // of a kernel that observes; or of all units together
constexpr double LEAST_GAP_US = 15;     // less is the observer's own loop
constexpr int LIMIT_S = 20;

// The window in which all contexts were at work.
Span common(const std::vector<Span> &whole) {
    Span window = whole[0];
    for (auto &span : whole) window = {std::max(window.from, span.from), std::min(window.to, span.to)};
    return window;
}

// The first moment after `from` and before `to` at which another context runs again; 0 if there is none.
unsigned long long next_start(unsigned contexts, unsigned me, unsigned long long from, unsigned long long to) {
    unsigned long long next = 0;
    for (unsigned other = 0; other < contexts; other++)
        for (unsigned i = 0; other != me && i < stage->count[other]; i++) {
            unsigned long long at = stage->spans[other][i].to;
            if (at > from && at < to && (!next || at < next)) next = at;
        }
    return next;
}

// One kernel a context, which writes down when it did not run.
void observed(unsigned contexts, unsigned grid, unsigned block, const char *name) {
    std::vector<Role> roles;
    for (unsigned me = 0; me < contexts; me++)
        roles.push_back([=] {
            gpu.open();
            meet(0, contexts);
            meet(1, contexts, true);
            gpu.observe(OBSERVED_US, LEAST_GAP_US, grid ? grid : gpu.sms, block);
            gpu.finish();
            gpu.show_gaps(me);
        });
    if (!play(roles, LIMIT_S)) return;
    Span window = common({stage->whole, stage->whole + contexts});
    std::vector<double> run, gap, change;
    double useful = 0;
    for (unsigned me = 0; me < contexts; me++) {
        unsigned long long at = window.from;
        for (unsigned i = 0; i < stage->count[me]; i++) {
            Span pause = stage->spans[me][i];
            if (pause.to <= window.from || pause.from >= window.to) continue;
            if (pause.from > at) {
                run.push_back((pause.from - at) / 1e3);
                useful += pause.from - at;
            }
            gap.push_back(pause.us());
            at = pause.to;
            if (auto next = next_start(contexts, me, pause.from, pause.to)) change.push_back((next - pause.from) / 1e3);
        }
        if (window.to > at) useful += window.to - at;
    }
    double percent = window.to > window.from ? 100.0 * useful / (window.to - window.from) : -1;
    say("{\"slices\":\"%s\",\"contexts\":%u,\"grid\":%u,\"block\":%u,\"run_us\":%s,\"gap_us\":%s,\"switch_us\":%s,\"useful_percent\":%.2f}", name,
        contexts, grid, block, spread(run).c_str(), spread(gap).c_str(), spread(change).c_str(), percent);
}

// Many kernels a context, launched at once.
void units(unsigned contexts, double unit_us) {
    unsigned count = OBSERVED_US / contexts / unit_us;
    std::vector<Role> roles;
    for (unsigned me = 0; me < contexts; me++)
        roles.push_back([=] {
            gpu.open();
            meet(0, contexts);
            meet(1, contexts, true);
            for (unsigned i = 0; i < count; i++) gpu.work(gpu.stream, unit_us, i);
            gpu.finish();
            gpu.show_spans(me, count);
        });
    if (!play(roles, LIMIT_S)) return;
    std::vector<Span> whole;
    for (unsigned me = 0; me < contexts; me++) whole.push_back({stage->spans[me][0].from, stage->spans[me][count - 1].to});
    Span window = common(whole);
    std::string each;
    std::vector<double> spans;
    double sum = 0;
    for (unsigned me = 0; me < contexts; me++) {
        double done = 0;
        for (unsigned i = 0; i < count; i++) {
            Span span = stage->spans[me][i];
            spans.push_back(span.us());
            if (span.from >= window.from && span.to <= window.to) done += unit_us;
        }
        double percent = 100.0 * done / window.us();
        sum += percent;
        char text[32];
        snprintf(text, sizeof text, "%s%.1f", me ? "," : "", percent);
        each += text;
    }
    say("{\"slices_units\":\"units\",\"contexts\":%u,\"unit_us\":%.1f,\"each_percent\":[%s],\"sum_percent\":%.2f,\"unit_span_us\":%s}", contexts, unit_us,
        each.c_str(), sum, spread(spans).c_str());
}
} // namespace

void slices() {
    observed(2, 0, 1024, "one kernel each, 1 block of 1024 an SM");
    observed(2, 1, 32, "one kernel each, one warp");
    observed(3, 0, 1024, "three");
    units(1, 100);
    for (double unit_us : {10.0, 100.0, 1000.0}) units(2, unit_us);
    units(4, 100);
}
