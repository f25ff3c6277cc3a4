// What a GPU does with several contexts, and what its driver's calls cost, without Weir: probe [costs|gates|handover|slices ...].
// Answers are lines of JSON. Runs beside `kernels.cubin`; nobody else should be at work on the card.
#include <stdio.h>
#include <string.h>

#include "report.h"
#include "scenes.h"
#include "stage.h"

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*play)();
    } scenes[] = {{"costs", costs}, {"gates", gates}, {"handover", handover}, {"slices", slices}};
    open_stage();
    unsigned long long began = host_ns();
    bool known = argc == 1;
    for (auto &[name, play] : scenes) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++) wanted = wanted || !strcmp(argv[i], name);
        if (!wanted) continue;
        known = true;
        play();
        say("{\"done\":\"%s\",\"at_s\":%.1f}", name, (host_ns() - began) / 1e9);
    }
    if (!known) fprintf(stderr, "usage: probe [costs|gates|handover|slices ...]\n");
    return known ? 0 : 2;
}
