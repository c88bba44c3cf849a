#include "cuda/elements.h"

#include "cuda/element.cuh"

namespace
{

typedef void (*loop_t)(void *, const void *, const void *, size_t);

template <baton__cuda_op OP, typename T>
void loop(void *target, const void *left, const void *right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        static_cast<T *>(target)[i] = baton_element::combine<OP>(
            static_cast<const T *>(left)[i], static_cast<const T *>(right)[i]);
    }
}

template <baton__cuda_op OP, typename T> struct loops {
    static loop_t value()
    {
        return loop<OP, T>;
    }
};

const baton_element::table<loops> table;

} // namespace

bool elements_there(void)
{
    return true;
}

void elements_reduce(baton__cuda_op_t op, baton_dtype_t dtype, void *target,
                     const void *left, const void *right, size_t count)
{
    table.entries[op][dtype](target, left, right, count);
}
