/* Tells latencies, one line of stdin each: METRIC NANOSECONDS TIMES; says what the last call answered. With an argument it
 * is a CUDA program, without one a server in front of others. */
#include "cuda.h"
#include "weir.h"

int main(int argc, char **argv) {
    char metric[64];
    unsigned long long ns;
    int times;
    if (argc > 1 && !strcmp(argv[1], "cuda")) start();
    while (scanf("%63s %llu %d", metric, &ns, &times) == 3) {
        int code = -1;
        while (times-- > 0) code = weir_latency(metric, ns);
        printf("%d\n", code);
        fflush(stdout);
    }
    return 0;
}
