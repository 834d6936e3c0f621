#include "perf/ceiling/ceiling_clock.h"

#include <exception>
#include <stdexcept>

#include "backend/cuda_raii.h"

namespace moe::perf {
namespace {

constexpr int kWarmupReplays = 1;

// Adds a record node to the graph at this point. A plain record would only order streams.
void recordInGraph(cudaEvent_t event, cudaStream_t stream) {
  checkCuda(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal), "cannot record an event in a graph");
}

}  // namespace

CeilingClock::CeilingClock(Device& device, Group& group, const FlagJobs& flags)
    : device_(device), group_(group), flags_(flags), begin_(makeEvent()), end_(makeEvent()) {}

std::vector<double> CeilingClock::time(int launches, int replays, const std::function<void(int)>& launch) {
  const Graph graph = capture(launches, launch);
  group_.barrier();  // every rank is ready; from here on kernels wait for each other
  std::vector<double> mine;
  for (int i = -kWarmupReplays; i < replays; ++i) {
    const double microseconds = replay(graph);
    if (i >= 0) mine.push_back(microseconds / launches);
  }
  FlagState state{};
  device_.download(&state, flags_.state, sizeof(state));
  if (state.late != 0) throw std::runtime_error("--ceiling: another rank did not reach a barrier on the GPU");
  return group_.slowest(mine);
}

CeilingClock::Event CeilingClock::makeEvent() {
  cudaEvent_t event = nullptr;
  checkCuda(cudaEventCreate(&event), "cannot make an event");
  return {event, [](cudaEvent_t made) { cudaEventDestroy(made); }};
}

CeilingClock::Graph CeilingClock::capture(int launches, const std::function<void(int)>& launch) {
  const cudaStream_t stream = device_.stream();
  checkCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot begin a capture");
  std::exception_ptr failure;
  try {
    checkCuda(launchBarrier(flags_, stream), "cannot launch a barrier of the ceilings");
    recordInGraph(begin_.get(), stream);
    for (int i = 0; i < launches; ++i) launch(i);
    recordInGraph(end_.get(), stream);
  } catch (...) {
    failure = std::current_exception();  // the capture must end before the stream can be used again
  }
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = ended == cudaSuccess && !failure ? cudaGraphInstantiate(&executable, graph, 0) : cudaSuccess;
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (failure) std::rethrow_exception(failure);
  checkCuda(ended, "cannot end a capture");
  checkCuda(made, "cannot instantiate a graph");
  Graph owner(executable, [](cudaGraphExec_t done) { cudaGraphExecDestroy(done); });
  checkCuda(cudaGraphUpload(executable, stream), "cannot upload a graph");
  device_.wait();
  return owner;
}

double CeilingClock::replay(const Graph& graph) {
  checkCuda(cudaGraphLaunch(graph.get(), device_.stream()), "cannot launch a graph");
  device_.wait();
  float milliseconds = 0;
  checkCuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cannot read the time of a replay");
  return milliseconds * 1e3;
}

}  // namespace moe::perf
