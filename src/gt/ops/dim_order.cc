#include "gt/ops/dim_order.h"

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gt/base/text.h"

namespace gt {
namespace {

struct Family {
  DimOrder order;
  std::string_view operators;  // without "aten::" and overloads
};

// Copies of views (slice_copy, ...) are as the view.
constexpr Family kFamilies[] = {
    // Element by element, with broadcasting.
    {DimOrder::kKept,
     "_conj_physical _to_copy abs acos add addcdiv addcmul asin atan atan2 bitwise_and "
     "bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp "
     "clamp_max clamp_min clone complex copy cos cosh div elu eq erf erfc exp exp2 expm1 "
     "fill floor floor_divide fmod frac ge gelu gelu_backward gt hardtanh "
     "hardtanh_backward isinf isnan le leaky_relu leaky_relu_backward lerp log log1p log2 "
     "log_sigmoid_backward log_sigmoid_forward logaddexp logical_and logical_not "
     "logical_or logical_xor lt masked_fill maximum minimum mul nan_to_num ne neg polar "
     "pow reciprocal relu remainder round rsqrt rsub sgn sigmoid sigmoid_backward sign "
     "silu silu_backward sin sinh softplus softplus_backward sqrt sub tan tanh "
     "tanh_backward threshold_backward trunc where xlogy zero lift_fresh_copy tril triu"},
    {DimOrder::kKept,
     "bernoulli exponential multinomial native_dropout native_dropout_backward "
     "normal_functional rand_like randint_like randn_like random uniform"},
    // Along a dimension, or of whole dimensions.
    {DimOrder::kKept,
     "_log_softmax _log_softmax_backward_data _softmax _softmax_backward_data all amax "
     "amin any argmax argmin count_nonzero cumprod cumsum linalg_vector_norm logsumexp max "
     "mean min nansum norm prod std sum var var_mean _fused_rms_norm "
     "_fused_rms_norm_backward native_layer_norm native_layer_norm_backward "
     "binary_cross_entropy_with_logits mse_loss mse_loss_backward nll_loss2d_backward "
     "nll_loss2d_forward nll_loss_backward nll_loss_forward smooth_l1_loss "
     "smooth_l1_loss_backward"},
    {DimOrder::kKept,
     "_grouped_mm addbmm addmm addmv baddbmm bmm dot mm mv "
     "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward "
     "_scaled_dot_product_efficient_attention "
     "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention "
     "_scaled_dot_product_flash_attention_backward "
     "_scaled_dot_product_flash_attention_for_cpu "
     "_scaled_dot_product_flash_attention_for_cpu_backward gt::flex_attention "
     "gt::flex_attention_backward"},
    // Dimensions change places, come, go, or get shorter.
    {DimOrder::kKept,
     "_conj _neg_view alias cat constant_pad_nd detach expand permute repeat select "
     "select_backward select_scatter slice slice_backward slice_scatter split "
     "split_with_sizes squeeze stack t transpose unbind unsqueeze view_as_complex "
     "view_as_real"},
    {DimOrder::kKept,
     "gt::offload gt::reload gt::wait_transfer _c10d_functional::all_reduce "
     "_c10d_functional::all_reduce_coalesced _c10d_functional::broadcast "
     "_c10d_functional::wait_tensor"},
    {DimOrder::kRegrouped, "_reshape_alias _unsafe_view reshape view"},
    {DimOrder::kReordered, "flip roll sort topk"},
    {DimOrder::kLookedUp, "_unsafe_index embedding gather index index_select take"},
    {DimOrder::kWritten,
     "_unsafe_index_put index_add index_copy index_fill index_put scatter scatter_add "
     "scatter_reduce"},
    {DimOrder::kConstant,
     "empty empty_like empty_permuted empty_strided full full_like new_empty "
     "new_empty_strided new_full new_ones new_zeros ones ones_like scalar_tensor zeros "
     "zeros_like"},
    {DimOrder::kNumbered, "arange eye linspace normal rand randint randn randperm"},
    {DimOrder::kAcrossRanks,
     "_c10d_functional::all_gather_into_tensor "
     "_c10d_functional::all_gather_into_tensor_coalesced "
     "_c10d_functional::all_to_all_single _c10d_functional::reduce_scatter_tensor "
     "_c10d_functional::reduce_scatter_tensor_coalesced"},
    // Results whose order data decides, windows, diagonals, arbitrary strides, or no results.
    {DimOrder::kUnknown,
     "_assert_async _local_scalar_dense as_strided as_strided_scatter bucketize diagonal "
     "diagonal_backward diagonal_scatter embedding_dense_backward histc masked_scatter put "
     "repeat_interleave searchsorted unfold unfold_backward gt::generator_state "
     "gt::read_ints gt::set_generator_state"},
};

class Table {
 public:
  static const Table& Get() {
    static const Table& table = *new Table();
    return table;
  }
  std::optional<DimOrder> Find(const Operator& op) const {
    auto found = by_operator_.find(&op);
    return found == by_operator_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  Table() {
    std::unordered_map<std::string, DimOrder> by_name;
    for (const Family& family : kFamilies) {
      for (const std::string& name : Split(family.operators, ' ')) {
        by_name.emplace(name, family.order);
      }
    }
    for (const Operator* op : AllOperators()) {
      constexpr std::string_view kAten = "aten::", kCopy = "_copy";
      std::string name = op->name.str().substr(0, op->name.str().find('.'));
      if (name.starts_with(kAten)) name.erase(0, kAten.size());
      auto found = by_name.find(name);
      if (found == by_name.end() && name.ends_with(kCopy)) {
        found = by_name.find(name.substr(0, name.size() - kCopy.size()));
      }
      if (found != by_name.end()) by_operator_.emplace(op, found->second);
    }
  }

  std::unordered_map<const Operator*, DimOrder> by_operator_;
};

}  // namespace

DimOrder DimOrderOf(const Operator& op) {
  return Table::Get().Find(op).value_or(DimOrder::kUnknown);
}

bool HasDimOrder(const Operator& op) { return Table::Get().Find(op).has_value(); }

}  // namespace gt
