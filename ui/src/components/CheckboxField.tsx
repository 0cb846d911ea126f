import type { ReactNode } from 'react';
import { CheckboxField as AriaCheckboxField, CheckboxButton } from 'react-aria-components';

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
    <AriaCheckboxField
      isSelected={isSelected}
      onChange={onChange}
      isIndeterminate={isIndeterminate ?? false}
      isDisabled={isDisabled ?? false}
      {...(label === undefined ? {} : { 'aria-label': label })}
    >
      <CheckboxButton className="checkbox">
        <span className="box" aria-hidden="true" />
        {children}
      </CheckboxButton>
    </AriaCheckboxField>
  );
}
