// exattn._core: the calls that exattn/__init__.py documents and types. Arguments are all positional here.
#include "arrays.hpp"
#include "pools.hpp"

#include "exact/safe_math.hpp"

#include <exattn/exattn.hpp>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace exattn_python {

namespace {

// ---- Options

std::string quoted(const std::string &text) {
  return "'" + text + "'";
}

std::string text(const py::handle &object, const char *name) {
  if (!py::isinstance<py::str>(object)) {
    throw py::type_error(std::string(name) + " must be a str");
  }
  return object.cast<std::string>();
}

bool truth(const py::handle &object, const char *name) {
  bool value = false;
  try {
    value = object.cast<bool>();
  } catch (const py::cast_error &) {
    throw py::type_error(std::string(name) + " must be a bool");
  }
  if (object.is_none()) {
    throw py::type_error(std::string(name) + " must be a bool");
  }
  return value;
}

double real(const py::handle &object, const std::string &name) {
  const double value = PyFloat_AsDouble(object.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) {
      throw py::error_already_set();
    }
    PyErr_Clear();
    throw py::type_error(name + " must be a number");
  }
  return value;
}

std::int32_t flavour_of(const py::handle &object) {
  const std::string name = text(object, "flavour");
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    if (name == exattn_flavour_name(flavour)) {
      return flavour;
    }
  }
  refuse(EXATTN_ERROR_ENUM, "flavour", quoted(name), "'exact' or 'fast'");
}

std::int32_t lanes_of(const py::handle &object) {
  const std::string name = text(object, "lanes");
  std::int32_t lanes = EXATTN_LANES_AUTO;
  if (const exattn_status status = exattn_lanes_from_name(name.c_str(), &lanes); status != EXATTN_OK) {
    std::string names;
    for (std::int32_t known = 0; known < EXATTN_LANES_COUNT; ++known) {
      names += (known == 0 ? "" : ", ") + std::string(exattn_lanes_name(known));
    }
    refuse(status, "lanes", quoted(name), "one of " + names);
  }
  return lanes;
}

std::int32_t fully_masked_of(const py::handle &object) {
  const std::string name = text(object, "fully_masked");
  if (name != "nan" && name != "zero") {
    refuse(EXATTN_ERROR_ENUM, "fully_masked", quoted(name), "'nan' or 'zero'");
  }
  return name == "nan" ? EXATTN_FULLY_MASKED_NAN : EXATTN_FULLY_MASKED_ZERO;
}

// Null where the object is no integer.
py::object index_of(const py::handle &object) {
  if (PyIndex_Check(object.ptr()) == 0) {
    return {};
  }
  py::object index = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!index) { // an array of several numbers has the method, but not the value
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) {
      throw py::error_already_set();
    }
    PyErr_Clear();
  }
  return index;
}

std::int64_t to_64_bits(const py::object &index, const std::string &name) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) {
    throw exattn::error(EXATTN_ERROR_OVERFLOW,
                        name + " is " + py::str(index).cast<std::string>() + ", must fit in 64 bits");
  }
  return value;
}

std::int64_t integer(const py::handle &object, const std::string &name) {
  const py::object index = index_of(object);
  if (!index) {
    throw py::type_error(name + " must be an int");
  }
  return to_64_bits(index, name);
}

// One number for each sequence.
std::vector<std::int64_t> integers(const py::handle &object, const std::string &name, std::int64_t batch) {
  std::vector<std::int64_t> values;
  if (!PySequence_Check(object.ptr()) || py::isinstance<py::str>(object)) {
    throw py::type_error(name + " must be an int or a sequence of ints, one for each sequence of the batch");
  }
  for (const py::handle item : py::reinterpret_borrow<py::object>(object)) {
    values.push_back(integer(item, name + "[" + std::to_string(values.size()) + "]"));
  }
  if (static_cast<std::int64_t>(values.size()) != batch) {
    refuse(EXATTN_ERROR_SIZE, "the size of " + name, std::to_string(values.size()),
           std::to_string(batch) + ", the batch");
  }
  return values;
}

// As float32, without taking a number for 0 or an infinity that it is not.
float number(const py::handle &object, const std::string &name) {
  const double value = real(object, name);
  const float rounded = static_cast<float>(value);
  if ((rounded == 0 && value != 0) || (std::isinf(rounded) && !std::isinf(value))) {
    refuse(EXATTN_ERROR_OPTION, name, py::str(py::float_(value)), "within the range of float32");
  }
  return rounded;
}

// One number for each head, copied: the library wants them side by side.
std::vector<float> numbers(const py::handle &object, const std::string &name, std::int64_t heads) {
  std::vector<float> values;
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    for (const py::handle item : py::reinterpret_borrow<py::object>(object)) {
      values.push_back(number(item, name + "[" + std::to_string(values.size()) + "]"));
    }
  } else {
    const ArrayView view = view_of(object, name, Elements::kFloat32);
    if (view.rank() != 1) {
      refuse(EXATTN_ERROR_SIZE, "the shape of " + name, shape_text(view.shape),
             "[" + std::to_string(heads) + "], heads");
    }
    values.resize(static_cast<std::size_t>(view.shape[0]));
    for (std::size_t n = 0; n < values.size(); ++n) { // by bytes: any pattern, any alignment
      std::memcpy(&values[n],
                  static_cast<const std::byte *>(view.data) +
                      static_cast<std::int64_t>(n * sizeof(float)) * view.strides[0],
                  sizeof(float));
    }
  }
  if (static_cast<std::int64_t>(values.size()) != heads) {
    refuse(EXATTN_ERROR_SIZE, "the size of " + name, std::to_string(values.size()), std::to_string(heads) + ", heads");
  }
  return values;
}

exattn_pool *pool_for(const py::handle &threads) {
  const std::int64_t count = integer(threads, "threads");
  if (count < 1 || count > kMostThreads) {
    refuse(EXATTN_ERROR_THREADS, "threads", std::to_string(count),
           "1 to " + std::to_string(kMostThreads) + ", or None: all processors that this process may use");
  }
  try {
    return pool_of(static_cast<std::int32_t>(count));
  } catch (const exattn::error &refused) {
    if (refused.status() == EXATTN_ERROR_THREADS) { // the number is allowed, so the system is what refuses
      throw std::runtime_error(std::string(refused.what()) + " (" + std::to_string(count) + " threads)");
    }
    throw;
  }
}

// ---- Arrays

void expect_rank(const ArrayView &view, const std::string &name, std::size_t least) {
  if (view.rank() < least || view.rank() > 4) {
    refuse(EXATTN_ERROR_SIZE, "the number of dimensions of " + name,
           std::to_string(view.rank()) + " (shape " + shape_text(view.shape) + ")", std::to_string(least) + " to 4");
  }
}

// A result in memory of its own, or in what the caller brought.
struct Result {
  py::object object;
  ArrayView view;
};

Result new_result(const std::vector<std::int64_t> &shape) {
  const py::array_t<float> made(std::vector<py::ssize_t>(shape.begin(), shape.end()));
  return {made, writable_view_of(made, "out")};
}

Result result_in(const py::object &out, const std::vector<std::int64_t> &shape) {
  if (out.is_none()) {
    return new_result(shape);
  }
  Result result{out, writable_view_of(out, "out")};
  if (result.view.shape != shape) {
    refuse(EXATTN_ERROR_SIZE, "the shape of out", shape_text(result.view.shape), shape_text(shape));
  }
  return result;
}

// The masks of a call: one of either kind, or a pair of both.
struct Masks {
  std::vector<ArrayView> views; // keep the memory

  void add(const py::handle &object, const std::string &name, Elements allowed, exattn_attention_args &args) {
    const ArrayView &view = views.emplace_back(view_of(object, name, allowed));
    expect_rank(view, name, 2);
    const exattn::tensor mask = view.tensor();
    const exattn::extents scores{args.batch, args.heads, args.q_len, args.kv_len};
    for (std::size_t n = 0; n < 4; ++n) {
      if (mask.shape[n] != 1 && mask.shape[n] != scores[n]) {
        throw exattn::error(EXATTN_ERROR_SIZE, "the shape of " + name + " is " + shape_text(view.shape) +
                                                   ", which can't be broadcast to " +
                                                   shape_text({scores.begin(), scores.end()}) +
                                                   " (batch, heads, queries, keys)");
      }
    }
    (mask.dtype == EXATTN_U8 ? args.mask_bool : args.mask) = exattn::to_c_mask(mask);
  }

  void set(const py::object &given, exattn_attention_args &args) {
    if (given.is_none()) {
      return;
    }
    if (!py::isinstance<py::tuple>(given)) {
      add(given, "mask", Elements::kMask, args);
      return;
    }
    const py::tuple pair = given.cast<py::tuple>();
    if (pair.size() != 2) {
      throw py::type_error("mask is a tuple of " + std::to_string(pair.size()) +
                           ", must be an array, or a pair: float32 to add, and bool");
    }
    add(pair[0], "mask[0]", Elements::kFloat32, args);
    add(pair[1], "mask[1]", Elements::kBytes, args);
  }
};

// ---- Calls

// Everything that Python names attention(...), in the order of its signature.
py::object attention(const py::object &q, const py::object &k, const py::object &v, const py::object &mask,
                     const py::object &causal, const py::object &q_offset, const py::object &window,
                     const py::object &sinks, const py::object &alibi, const py::object &softcap,
                     const py::object &scale, const py::object &flavour, const py::object &lanes,
                     const py::object &kv_len, const py::object &enable_gqa, const py::object &fully_masked,
                     const py::object &return_lse, const py::object &out, const py::object &threads) {
  const ArrayView queries = view_of(q, "q", Elements::kFloats);
  const ArrayView keys = view_of(k, "k", Elements::kFloats);
  const ArrayView values = view_of(v, "v", Elements::kFloats);
  expect_rank(queries, "q", 2);
  const std::string as_q = std::to_string(queries.rank()) + ", as of q";
  for (const auto &[view, name] : {std::pair{&keys, "k"}, std::pair{&values, "v"}}) {
    if (view->rank() != queries.rank()) {
      refuse(EXATTN_ERROR_SIZE, "the number of dimensions of " + std::string(name), std::to_string(view->rank()), as_q);
    }
  }
  std::vector<std::int64_t> out_shape = queries.shape;
  out_shape.back() = values.shape.back();
  const std::vector<std::int64_t> lse_shape(queries.shape.begin(), queries.shape.end() - 1);

  exattn_attention_args args =
      exattn::attention_arguments(queries.tensor(), keys.tensor(), values.tensor(), exattn::output());
  if (!truth(enable_gqa, "enable_gqa") && args.heads != args.kv_heads) {
    refuse(EXATTN_ERROR_HEADS, "the number of heads of k", std::to_string(args.kv_heads),
           std::to_string(args.heads) + ", as of q, with enable_gqa=False");
  }
  args.flavour = flavour_of(flavour);
  args.lanes = lanes_of(lanes);
  args.causal = truth(causal, "causal") ? 1 : 0;
  args.window = integer(window, "window");
  args.softcap = number(softcap, "softcap");
  args.fully_masked = fully_masked_of(fully_masked);
  if (!scale.is_none()) {
    args.scale = number(scale, "scale");
    args.scale_mode = EXATTN_SCALE_GIVEN;
  }
  std::vector<std::int64_t> offsets;
  if (const py::object index = index_of(q_offset)) {
    args.q_offset = to_64_bits(index, "q_offset");
  } else {
    offsets = integers(q_offset, "q_offset", args.batch);
    args.q_offsets = offsets.data();
  }
  std::vector<std::int64_t> lengths;
  if (!kv_len.is_none()) {
    if (const py::object index = index_of(kv_len)) {
      lengths.assign(static_cast<std::size_t>(args.batch), to_64_bits(index, "kv_len"));
    } else {
      lengths = integers(kv_len, "kv_len", args.batch);
    }
    args.kv_lens = lengths.data();
  }
  std::vector<float> sink_logits;
  if (!sinks.is_none()) {
    sink_logits = numbers(sinks, "sinks", args.heads);
    args.sinks = sink_logits.data();
  }
  std::vector<float> slopes;
  if (!alibi.is_none()) {
    slopes = numbers(alibi, "alibi", args.heads);
    args.alibi_slopes = slopes.data();
  }
  Masks masks;
  masks.set(mask, args);

  const Result result = result_in(out, out_shape);
  args.out = exattn::to_c(result.view.output());
  const bool wants_lse = truth(return_lse, "return_lse");
  Result lse;
  if (wants_lse) {
    lse = new_result(lse_shape);
    args.lse = exattn::to_c_lse(static_cast<float *>(lse.view.data), args.heads, args.q_len);
  }
  args.pool = pool_for(threads);
  {
    const py::gil_scoped_release others_run;
    exattn::attention(args);
  }
  return wants_lse ? py::object(py::make_tuple(result.object, lse.object)) : result.object;
}

py::object softmax(const py::object &x, const py::object &flavour, const py::object &lanes, const py::object &out,
                   const py::object &threads) {
  const ArrayView input = view_of(x, "x", Elements::kFloat32);
  expect_rank(input, "x", 1);
  const std::int32_t chosen = flavour_of(flavour);
  const std::int32_t kind = lanes_of(lanes);
  const Result result = result_in(out, input.shape);
  exattn_softmax_args args = exattn::softmax_arguments(input.tensor(), result.view.output());
  args.flavour = chosen;
  args.lanes = kind;
  args.pool = pool_for(threads);
  {
    const py::gil_scoped_release others_run;
    exattn::softmax(args);
  }
  return result.object;
}

// ---- What is here

py::object automatic_kernel(std::int32_t flavour) {
  std::int32_t lanes = EXATTN_LANES_AUTO;
  const char *kernel = "";
  return exattn_lanes_resolve(EXATTN_LANES_AUTO, flavour, &lanes, &kernel) == EXATTN_OK ? py::object(py::str(kernel))
                                                                                        : py::object(py::none());
}

py::dict info() {
  py::dict lanes;
  for (std::int32_t kind = EXATTN_LANES_AUTO + 1; kind < EXATTN_LANES_COUNT; ++kind) {
    exattn_lanes_info known{};
    known.struct_size = sizeof(known);
    exattn::check(exattn_lanes_query(kind, &known));
    py::dict entry;
    entry["built"] = known.built != 0;
    entry["cpu"] = known.cpu != 0;
    entry["os"] = known.os != 0;
    entry["exact"] = known.exact != 0;
    entry["fast"] = known.fast != 0;
    entry["width"] = known.width;
    lanes[exattn_lanes_name(kind)] = entry;
  }
  py::dict automatic;
  for (const std::int32_t flavour : {EXATTN_EXACT, EXATTN_FAST}) {
    automatic[exattn_flavour_name(flavour)] = automatic_kernel(flavour);
  }
  py::dict result;
  result["version"] = exattn_version();
  result["definition"] = exattn_definition();
  result["lanes"] = lanes;
  result["auto"] = automatic;
  return result;
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) {
      std::rethrow_exception(std::move(thrown));
    }
  } catch (const exattn::error &found) {
    PyErr_SetString(found.status() == EXATTN_ERROR_MEMORY ? PyExc_MemoryError : PyExc_ValueError, found.what());
  }
}

} // namespace

} // namespace exattn_python

PYBIND11_MODULE(_core, module) {
  pybind11::register_local_exception_translator(exattn_python::translate);
  module.def("attention", &exattn_python::attention);
  module.def("softmax", &exattn_python::softmax);
  module.def("as_numpy", &exattn_python::as_numpy);
  module.def("info", &exattn_python::info);
  module.attr("version") = exattn_version();
  module.attr("definition") = exattn_definition();
  module.attr("most_threads") = exattn_python::kMostThreads;
}
