#include "report.h"

#include <algorithm>
#include <stdarg.h>
#include <stdio.h>

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
}

double quantile(const std::vector<double> &ordered, double part) {
    if (ordered.empty()) return -1;
    return ordered[std::min(ordered.size() - 1, (size_t)(part * ordered.size()))];
}

std::string spread(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    std::string text = "{\"n\":" + std::to_string(values.size());
    const struct {
        const char *name;
        double part;
    } parts[] = {{"min", 0}, {"p10", 0.1}, {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}};
    for (auto &[name, part] : parts) {
        char field[64];
        snprintf(field, sizeof field, ",\"%s\":%.2f", name, quantile(values, part));
        text += field;
    }
    return text + "}";
}
