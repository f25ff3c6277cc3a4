/* Closes descriptors that it did not open, and uses their numbers for a file of its own: all beyond the first three, or
 * only the one that leads to the node manager. */
#include "cuda.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { MOST = 256 };

static int leads_to_manager(int fd) {
    struct sockaddr_un peer = {0};
    socklen_t length = sizeof peer;
    return !getpeername(fd, (struct sockaddr *)&peer, &length) && strstr(peer.sun_path, "tenant.sock");
}

int main(int argc, char **argv) {
    int code, launched = 0, taken = 0, all = argc > 2 && !strcmp(argv[2], "all");
    if (argc < 2) return 1;
    start();
    int file = open(argv[1], O_RDWR | O_CREAT | O_APPEND, 0600);
    for (int fd = 3; fd < MOST; fd++) {
        if (fd == file || !(all || leads_to_manager(fd))) continue;
        if (dup2(file, fd) == fd) taken++;
    }
    for (int at = 0; at < 2000; at++) launched += launch() == 0;
    allocate((size_t)3 << 30, &code);
    if (write(file, "mine\n", 5) != 5) return 1;
    printf("launched %d taken %d over_the_limit %d\n", launched, taken > 0, code);
    fflush(stdout);
    getchar();
    return 0;
}
