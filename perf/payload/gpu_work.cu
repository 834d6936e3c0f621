// The Device of the cuda backend: one GPU, one non-blocking stream, and a kernel with one block per row for each kind
// of work.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "backend/cuda_raii.h"
#include "perf/payload/device.h"

namespace moe::perf {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

constexpr int kThreads = 256;

template <class Job>
__global__ void __launch_bounds__(kThreads) runJob(const __grid_constant__ Job job) {
  const std::int64_t rowCount = job.rowCount();
  for (std::int64_t row = blockIdx.x; row < rowCount; row += gridDim.x) {
    job(row, static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  }
}

// With lazy loading, a kernel's first launch loads it, and that may wait for the GPU. It must never happen during
// communication, so all kernels are loaded here.
template <class... Jobs>
void loadKernels(const std::variant<Jobs...>*) {
  cudaFuncAttributes attributes;
  (check(cudaFuncGetAttributes(&attributes, runJob<Jobs>), "cannot load a kernel of moe_perf"), ...);
}

class GpuDevice : public Device {
 public:
  explicit GpuDevice(int ordinal) {
    check(cudaSetDevice(ordinal), "cannot use the GPU");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, ordinal), "cannot ask for the GPU's properties");
    name_ = properties.name;
    blocksMax_ = properties.multiProcessorCount * 8;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot make a stream");
    loadKernels(static_cast<const Work*>(nullptr));
  }

  ~GpuDevice() override {
    dropGraphs();
    for (cudaEvent_t event : marks_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  moeStream_t stream() const override { return stream_; }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cannot allocate GPU memory");
    clear(memory, bytes);
    return memory;
  }
  void free(void* memory) override { cudaFree(memory); }

  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void clear(void* memory, std::size_t bytes) override {
    check(cudaMemsetAsync(memory, 0, bytes, stream_), "cannot clear GPU memory");
    wait();
  }

  void run(const Work& work) override {
    std::visit([this](const auto& job) { launchJob(job); }, work);
  }

  void reserveMarks(int count) override {
    while (marks_.size() < static_cast<std::size_t>(count)) {
      cudaEvent_t event;
      check(cudaEventCreate(&event), "cannot make an event");
      marks_.push_back(event);
    }
  }
  void mark(int index) override {
    check(cudaEventRecord(marks_.at(static_cast<std::size_t>(index)), stream_), "cannot record an event");
  }
  double microsecondsBetween(int first, int second) override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, marks_.at(static_cast<std::size_t>(first)),
                               marks_.at(static_cast<std::size_t>(second))),
          "cannot read the time between two events");
    return milliseconds * 1e3;
  }

  void wait() override { check(cudaStreamSynchronize(stream_), "the stream failed"); }

  bool hasGraphs() const override { return true; }
  int capture(const std::function<void()>& record) override {
    const Graph graph = recorded(record);
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph.get(), 0), "cannot instantiate a graph");
    graphs_.push_back(executable);
    check(cudaGraphUpload(executable, stream_), "cannot upload a graph");
    wait();
    return static_cast<int>(graphs_.size()) - 1;
  }
  void launch(int graph) override {
    check(cudaGraphLaunch(graphs_.at(static_cast<std::size_t>(graph)), stream_), "cannot launch a graph");
  }
  void dropGraphs() override {
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
    graphs_.clear();
  }

  int blocksOf(const std::function<void()>& record) override {
    const Graph graph = recorded(record);
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph.get(), nullptr, &count), "cannot count a graph's nodes");
    std::vector<cudaGraphNode_t> nodes(count);
    check(cudaGraphGetNodes(graph.get(), nodes.data(), &count), "cannot list a graph's nodes");
    int most = 0;
    for (cudaGraphNode_t node : nodes) most = std::max(most, blocksOf(node));
    return most;
  }

 private:
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
  };
  using Graph = std::unique_ptr<CUgraph_st, DestroyGraph>;

  Graph recorded(const std::function<void()>& record) {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cannot begin a capture");
    cudaGraph_t graph = nullptr;
    try {
      record();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "cannot end a capture");
    return Graph(graph);
  }

  static int blocksOf(cudaGraphNode_t node) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type), "cannot ask what a graph's node is");
    if (type != cudaGraphNodeTypeKernel) return 0;
    // The runtime would not know the kernel, because it belongs to the shared library.
    auto* getParams = driverFunction<decltype(cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", 12000);
    CUDA_KERNEL_NODE_PARAMS kernel{};
    if (getParams == nullptr || getParams(node, &kernel) != CUDA_SUCCESS) {
      throw std::runtime_error("cannot ask how a graph's kernel is launched");
    }
    return static_cast<int>(kernel.gridDimX);
  }

  template <class Job>
  void launchJob(const Job& job) {
    if (job.rowCount() == 0) return;
    runJob<<<static_cast<unsigned>(std::min<std::int64_t>(job.rowCount(), blocksMax_)), kThreads, 0, stream_>>>(job);
    check(cudaGetLastError(), "cannot launch a kernel of moe_perf");
  }

  void copy(void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cannot copy");
    wait();
  }

  std::string name_;
  int blocksMax_ = 0;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> marks_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace

int gpuCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // otherwise the next call would report it
    return 0;
  }
  return count;
}

std::unique_ptr<Device> makeGpuDevice(int ordinal) {
  return std::make_unique<GpuDevice>(ordinal);
}

}  // namespace moe::perf
