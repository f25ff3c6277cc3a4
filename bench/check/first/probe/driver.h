// The driver's calls, looked up by hand: the probe must meet the machine's own driver, however it was linked.
#pragma once
#include <cuda.h>

#define DRIVER_CALLS(X)                                                                                                \
    X(cuInit, "cuInit")                                                                                                \
    X(cuDeviceGet, "cuDeviceGet")                                                                                      \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute")                                                                    \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                                            \
    X(cuCtxSetCurrent, "cuCtxSetCurrent")                                                                              \
    X(cuCtxGetCurrent, "cuCtxGetCurrent")                                                                              \
    X(cuCtxSynchronize, "cuCtxSynchronize")                                                                            \
    X(cuModuleLoad, "cuModuleLoad")                                                                                    \
    X(cuModuleGetFunction, "cuModuleGetFunction")                                                                      \
    X(cuMemAlloc, "cuMemAlloc_v2")                                                                                     \
    X(cuMemFree, "cuMemFree_v2")                                                                                       \
    X(cuMemGetInfo, "cuMemGetInfo_v2")                                                                                 \
    X(cuMemHostRegister, "cuMemHostRegister_v2")                                                                       \
    X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2")                                                       \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2")                                                                                 \
    X(cuMemsetD8Async, "cuMemsetD8Async")                                                                              \
    X(cuLaunchKernel, "cuLaunchKernel")                                                                                \
    X(cuStreamCreate, "cuStreamCreate")                                                                                \
    X(cuStreamSynchronize, "cuStreamSynchronize")                                                                      \
    X(cuStreamQuery, "cuStreamQuery")                                                                                  \
    X(cuStreamIsCapturing, "cuStreamIsCapturing")                                                                      \
    X(cuStreamWriteValue32, "cuStreamWriteValue32_v2")                                                                 \
    X(cuStreamWaitValue32, "cuStreamWaitValue32_v2")                                                                   \
    X(cuEventCreate, "cuEventCreate")                                                                                  \
    X(cuEventRecord, "cuEventRecord")                                                                                  \
    X(cuEventQuery, "cuEventQuery")                                                                                    \
    X(cuEventSynchronize, "cuEventSynchronize")                                                                        \
    X(cuEventElapsedTime, "cuEventElapsedTime")

// The calls as pointers, each of its declaration's type: `driver.cuInit(0)`.
struct Driver {
#define DRIVER_FIELD(name, symbol) decltype(&::name) name;
    DRIVER_CALLS(DRIVER_FIELD)
#undef DRIVER_FIELD
    void load();
};
// `cuda.h` defines some names as macros of their newer versions: what is looked up above is the newer version, too.
extern Driver driver;

// Ends this process with an answer where the driver refuses.
void check(CUresult result, const char *call, int line);
#define CHECK(call) check((call), #call, __LINE__)
