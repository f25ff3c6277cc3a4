// One process's context: its stream, its kernels, and the memory in which they write down when they ran.
#pragma once
#include <vector>

#include "driver.h"
#include "stage.h"

constexpr unsigned BLOCK = 256; // threads of a block, where nothing else is said

struct Gpu {
    CUcontext context;
    CUstream stream;
    CUdeviceptr words; // the stage's page of words, as the GPU sees it
    unsigned sms;

    // A context with everything in it; measures how many multiply-adds a microsecond takes.
    void open();
    // Multiply-adds for so long, on as many blocks of `block` threads; the span is written down at `slot`, if not negative.
    void work(CUstream in, double us, int slot = -1, unsigned grid = 0, unsigned block = BLOCK);
    void tiny(CUstream in);
    // A kernel that spins until `word` is at least 1.
    void hold(CUstream in, int word);
    // One kernel that runs for so long and writes down every stretch of more than `least_us` in which it did not.
    void observe(double us, double least_us, unsigned grid, unsigned block);
    // A wait in a stream for a word, and a word that the GPU writes when it comes there.
    void wait_word(CUstream in, int word, unsigned value, unsigned how = CU_STREAM_WAIT_VALUE_GEQ);
    void write_word(CUstream in, int word, unsigned value);
    CUdeviceptr word(int index) const { return words + 4 * index; }
    void finish() { CHECK(driver.cuStreamSynchronize(stream)); }

    // What kernels wrote down, for this process and, by `show`, for the stage.
    std::vector<Span> spans(unsigned count) const;
    void forget(unsigned count);
    void show_spans(int role, unsigned count) const;
    void show_gaps(int role) const;

    // The GPU's clock less the host's, in nanoseconds, within a microsecond or two.
    long long clock_offset_ns();

private:
    CUmodule module;
    CUfunction observe_kernel, work_kernel, pong_kernel, tiny_kernel, hold_kernel;
    CUdeviceptr sink, gaps, gap_count, span_memory, whole;
    double rounds_per_us = 0;
    void launch(CUfunction kernel, CUstream in, unsigned grid, unsigned block, void **arguments);
    void work_rounds(CUstream in, unsigned rounds, CUdeviceptr span, unsigned grid, unsigned block);
    void measure_pace();
    CUdeviceptr span_at(int slot) const { return span_memory + (unsigned long long)slot * sizeof(Span); }
};
extern Gpu gpu;
