// Answers: each is one line of JSON on stdout, flushed as it comes.
#pragma once
#include <string>
#include <vector>

void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// `{"n":..,"min":..,"p10":..,"p50":..,"p90":..,"p99":..,"max":..}`; without values all are -1.
std::string spread(std::vector<double> values);
// The value of which so large a part is less.
double quantile(const std::vector<double> &ordered, double part);
