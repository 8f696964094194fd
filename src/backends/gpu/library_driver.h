// A Driver over a library of a vendor, as far as CUDA's driver and AMD's runtime have the same functions under names of their own.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "backends/gpu/driver.h"
#include "backends/gpu/runtime_api.h"
#include "base/rounding.h"

namespace gemmtune::gpu {

/// `Vendor` has the types Functions (the library's table), DevicePointer, MemoryHandle and MemoryProperties, and
///   prefix, allocation     how names of functions begin, and the name of that which allocates, for errors
///   status(result, what)   the library's error as a Status
///   forget_error(f)        where a failed call would be reported by the next one too
///   Untouched              lives while functions are called that a capture on another stream does not bear
template <typename Vendor>
class LibraryDriver : public Driver {
 public:
  using Functions = typename Vendor::Functions;
  using DevicePointer = typename Vendor::DevicePointer;

  LibraryDriver(const LibraryDriver&) = delete;
  LibraryDriver& operator=(const LibraryDriver&) = delete;

  api::StreamHandle stream_of(Stream stream) const {
    return stream.handle != nullptr ? static_cast<api::StreamHandle>(stream.handle) : stream_;
  }

  const Properties& properties() const final { return properties_; }

  std::size_t free_memory_bytes() final {
    std::size_t free = 0;
    std::size_t total = 0;
    return f_.memory_info(&free, &total) == api::success ? free : 0;
  }
  Result<void*> allocate(std::size_t bytes) final {
    const Untouched untouched(f_);
    DevicePointer block{};
    if (const api::Result result = f_.allocate(&block, bytes); result != api::success) {
      Vendor::forget_error(f_);
      return Vendor::status(result, fmt::format("{} of {} bytes", Vendor::allocation, bytes));
    }
    return pointer(block);
  }
  void free(void* memory) final {
    const Untouched untouched(f_);
    f_.release(address(memory));
  }
  Result<Mapping> map_page_end(std::size_t bytes) final {
    Mapping mapping;
    const Status status = map(mapping, bytes);
    if (status.ok()) return mapping;
    unmap(mapping);
    return status;
  }
  void unmap(const Mapping& mapping) final {
    const Untouched untouched(f_);
    if (mapping.mapped_bytes != 0) f_.memory_unmap(address(mapping.begin), mapping.mapped_bytes);
    if (mapping.memory != 0) f_.memory_release(std::bit_cast<MemoryHandle>(mapping.memory));
    if (mapping.begin != nullptr) f_.address_free(address(mapping.begin), mapping.reserved_bytes);
  }
  Status copy_in(void* device, const void* host, std::size_t bytes) final {
    const Untouched untouched(f_);
    return Vendor::status(f_.copy_to_device(address(device), const_cast<void*>(host), bytes),
                          "copy to the device");
  }
  Status copy_out(void* host, const void* device, std::size_t bytes) final {
    const Untouched untouched(f_);
    return Vendor::status(f_.copy_to_host(host, address(device), bytes), "copy from the device");
  }
  Status copy_within(void* to, const void* from, std::size_t bytes) final {
    const Untouched untouched(f_);
    return Vendor::status(f_.copy_on_device(address(to), address(from), bytes), "copy on the device");
  }
  Status fill(void* device, int byte, std::size_t bytes) final {
    const Untouched untouched(f_);
    return Vendor::status(f_.fill_bytes(address(device), static_cast<unsigned char>(byte), bytes), "fill");
  }

  Result<LoadedKernel> load(const std::string& code, const std::string& kernel) final {
    const Untouched untouched(f_);
    api::Module module = nullptr;
    GEMMTUNE_RETURN_IF_ERROR(checked(f_.module_load(&module, code.data()), "ModuleLoadData"));
    api::Function function = nullptr;
    const Status found =
        checked(f_.module_function(&function, module, kernel.c_str()), "ModuleGetFunction " + kernel);
    if (found.ok()) return LoadedKernel{module, function};
    f_.module_unload(module);
    return found;
  }
  void unload(const LoadedKernel& kernel) final {
    const Untouched untouched(f_);
    f_.module_unload(static_cast<api::Module>(kernel.module));
  }

  Stream own_stream() const final { return {stream_}; }
  Status wait(Stream stream) final {
    return Vendor::status(f_.stream_synchronize(stream_of(stream)), "the stream");
  }
  bool is_capturing(Stream stream) final { return captures(stream_of(stream)); }
  bool captures(api::StreamHandle stream) const {
    int status = api::capture_none;
    return f_.capture_status(stream, &status) == api::success && status != api::capture_none;
  }
  Status begin_capture(Stream stream) final {
    return checked(f_.capture_begin(stream_of(stream), api::capture_mode_thread_local), "StreamBeginCapture");
  }
  Result<Graph> end_capture(Stream stream) final {
    api::Graph captured = nullptr;
    Status status = checked(f_.capture_end(stream_of(stream), &captured), "StreamEndCapture");
    api::GraphExec graph = nullptr;
    if (status.ok()) status = checked(f_.graph_instantiate(&graph, captured, 0), "GraphInstantiate");
    if (captured != nullptr) f_.graph_destroy(captured);
    if (!status.ok()) return status;
    // Else the first run also pays for bringing each node to the device: 1 µs a launch, which service does not
    // see.
    status = checked(f_.graph_upload(graph, stream_of(stream)), "GraphUpload");
    if (status.ok()) return reinterpret_cast<Graph>(graph);
    f_.graph_exec_destroy(graph);
    return status;
  }
  void abandon_capture(Stream stream) final {
    api::Graph captured = nullptr;
    f_.capture_end(stream_of(stream), &captured);
    if (captured != nullptr) f_.graph_destroy(captured);
    Vendor::forget_error(f_);
  }
  Status launch_graph(Graph graph, Stream stream) final {
    return checked(f_.graph_launch(native(graph), stream_of(stream)), "GraphLaunch");
  }
  void destroy(Graph graph) final { f_.graph_exec_destroy(native(graph)); }
  Result<Event> create_event() final {
    api::Event event = nullptr;
    GEMMTUNE_RETURN_IF_ERROR(checked(f_.event_create(&event, api::event_default), "EventCreate"));
    return reinterpret_cast<Event>(event);
  }
  void destroy(Event event) final { f_.event_destroy(native(event)); }
  Result<double> milliseconds_between(Event begin, Event end) final {
    float milliseconds = 0;
    GEMMTUNE_RETURN_IF_ERROR(
        checked(f_.event_elapsed(&milliseconds, native(begin), native(end)), "EventElapsedTime"));
    return static_cast<double>(milliseconds);
  }

 protected:
  using Untouched = typename Vendor::Untouched;
  using MemoryHandle = typename Vendor::MemoryHandle;

  explicit LibraryDriver(const Functions& functions, int ordinal = 0) : f_(functions), ordinal_(ordinal) {}

  static api::GraphExec native(Graph graph) { return reinterpret_cast<api::GraphExec>(graph); }
  static api::Event native(Event event) { return reinterpret_cast<api::Event>(event); }
  /// `call`: the function's name behind the prefix.
  static Status checked(api::Result result, std::string_view call) {
    if (result == api::success) return {};
    return Vendor::status(result, fmt::format("{}{}", Vendor::prefix, call));
  }
  Status create_stream() { return checked(f_.stream_create(&stream_, api::stream_default), "StreamCreate"); }

  Functions f_;
  int ordinal_;
  api::StreamHandle stream_ = nullptr;
  Properties properties_;

 private:
  static void* pointer(DevicePointer address) { return std::bit_cast<void*>(address); }
  static DevicePointer address(const void* memory) { return std::bit_cast<DevicePointer>(memory); }

  /// Fills `mapping` as far as it comes, for unmap(): mapped_bytes is set last.
  Status map(Mapping& mapping, std::size_t bytes) {
    const Untouched untouched(f_);
    typename Vendor::MemoryProperties properties{};
    properties.type = api::allocation_pinned;
    properties.location = {api::location_device, ordinal_};
    std::size_t page = 0;
    GEMMTUNE_RETURN_IF_ERROR(
        checked(f_.memory_granularity(&page, &properties, 0), "MemGetAllocationGranularity"));
    const std::size_t usable = round_up(std::max<std::size_t>(bytes, 1), page);
    const std::size_t reserved = usable + page;
    DevicePointer begin{};
    GEMMTUNE_RETURN_IF_ERROR(
        checked(f_.address_reserve(&begin, reserved, 0, DevicePointer{}, 0), "MemAddressReserve"));
    mapping.begin = pointer(begin);
    mapping.reserved_bytes = reserved;
    MemoryHandle memory{};
    GEMMTUNE_RETURN_IF_ERROR(checked(f_.memory_create(&memory, usable, &properties, 0),
                                     fmt::format("MemCreate of {} bytes", usable)));
    mapping.memory = std::bit_cast<unsigned long long>(memory);
    GEMMTUNE_RETURN_IF_ERROR(checked(f_.memory_map(begin, usable, 0, memory, 0), "MemMap"));
    mapping.mapped_bytes = usable;
    const api::MemoryAccess access{properties.location, api::access_read_write};
    return checked(f_.memory_access(begin, usable, &access, 1), "MemSetAccess");
  }
};

}  // namespace gemmtune::gpu
