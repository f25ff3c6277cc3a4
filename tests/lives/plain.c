/* Launches and allocates a little, and says what it was answered: for worlds that are strange around it. */
#include "cuda.h"

int main(int argc, char **argv) {
    int launched = 0, code;
    start();
    for (int at = 1; at < (argc > 1 ? atoi(argv[1]) : 100); at++) launched += launch() == 0;
    unsigned long long pointer = allocate(1 << 20, &code);
    printf("launched %d allocated %d freed %d\n", launched + 1, code, CALL(cuMemFree_v2, pointer));
    printf("absent %d\n", dlsym(driver, "cuNoSuchFunction") != NULL);
    return 0;
}
