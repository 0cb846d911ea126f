import type { ReactNode } from 'react';
import { Checkbox } from 'react-aria-components';

interface Props {
  isSelected: boolean;
  onChange: (selected: boolean) => void;
  isIndeterminate?: boolean;
  isDisabled?: boolean;
  label?: string;
  children?: ReactNode;
}

export function CheckboxField({ isSelected, onChange, isIndeterminate, isDisabled, label, children }: Props) {
  return (
    <Checkbox
      className="checkbox"
      isSelected={isSelected}
      onChange={onChange}
      isIndeterminate={isIndeterminate ?? false}
      isDisabled={isDisabled ?? false}
      {...(label === undefined ? {} : { 'aria-label': label })}
    >
      <span className="box" aria-hidden="true" />
      {children}
    </Checkbox>
  );
}
