// What the probe asks, each a scene of one or more processes.
#pragma once

void costs();    // what calls cost the host, and marks the GPU
void gates();    // waits in a stream: open, closed, blocked
void handover(); // from one context's end to the next one's start
void slices();   // contexts that always have work
