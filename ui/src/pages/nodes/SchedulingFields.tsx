import { CheckboxField } from '../../components/CheckboxField';

// Scheduling says whether a disk or a node accepts new replicas, and whether its replicas move away. Both must not be
// true.
export interface Scheduling {
  allowScheduling: boolean;
  evictionRequested: boolean;
}

export function SchedulingFields({ value, onChange, elsewhere }: { value: Scheduling; onChange: (value: Scheduling) => void; elsewhere: string }) {
  return (
    <>
      <CheckboxField isSelected={value.allowScheduling} onChange={(on) => onChange({ allowScheduling: on, evictionRequested: value.evictionRequested && !on })}>
        Enable scheduling: new replicas may be placed here
      </CheckboxField>
      <CheckboxField isSelected={value.evictionRequested} onChange={(on) => onChange({ allowScheduling: value.allowScheduling && !on, evictionRequested: on })}>
        Evict all replicas: they move to other {elsewhere}
      </CheckboxField>
    </>
  );
}
